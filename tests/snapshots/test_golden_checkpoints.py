"""Frozen checkpoints of format 1, in every encoding: what was written once is read for ever.

Optimizer states of older releases could not be loaded any more in public (pytorch #146157).
"""

import json
import random
from hashlib import sha256
from pathlib import Path

import pytest

from eventlog.canonical import decode
from snapshots.checkpoint_store import CheckpointStore
from snapshots.checkpoints.manifest import ITEM_BYTES, Manifest, decode_manifest, encode_manifest
from snapshots.checkpoints.parts import PartReader
from snapshots.random_state import restore_random
from snapshots.tensor_codec import Encoding
from snapshots.training_state import decode_training_state

FOLDER = Path(__file__).resolve().parents[1] / "golden" / "checkpoints"
EXPECTED = json.loads((FOLDER / "expected.json").read_text(encoding="utf-8"))
STORE = CheckpointStore(FOLDER)


def manifest_of(checkpoint: str) -> Manifest:
    return STORE.read_manifest(STORE.find_checkpoint(checkpoint=checkpoint))


@pytest.mark.parametrize("checkpoint", sorted(EXPECTED))
def test_a_frozen_checkpoint_is_read(checkpoint: str) -> None:
    manifest = manifest_of(checkpoint)
    reader = PartReader(STORE, manifest)
    found = {}
    for name, tensor in manifest.tensors.items():
        digest = sha256()
        for chunk in tensor.chunks:
            for part in chunk.parts:
                digest.update(reader.read_part(name, part, ITEM_BYTES[tensor.dtype]))
        found[name] = [tensor.dtype, list(tensor.shape), digest.hexdigest()]
    values = {name: value.data.hex() for name, value in manifest.values.items()}
    assert {"tensors": found, "values": values} == EXPECTED[checkpoint]


def test_the_frozen_ones_show_every_encoding() -> None:
    shown = {each.part.encoding for one in EXPECTED for each in manifest_of(one).parts()}
    assert shown == set(Encoding)


@pytest.mark.parametrize("checkpoint", sorted(EXPECTED))
def test_a_manifest_is_written_as_it_always_was(checkpoint: str) -> None:
    ref = STORE.find_checkpoint(checkpoint=checkpoint)
    data = (STORE.set_folder(ref) / "manifest.json").read_bytes()
    assert encode_manifest(STORE.read_manifest(ref)) == data


def test_the_newest_is_the_head() -> None:
    assert STORE.head() == STORE.find_checkpoint(step=2)


SET = FOLDER.parent / "checkpoint_set" / "manifest.json"


def test_a_frozen_set_is_read_and_written_as_it_always_was() -> None:
    data = SET.read_bytes()
    manifest = decode_manifest(data)
    assert encode_manifest(manifest) == data
    entry = manifest.set
    assert entry is not None
    assert (entry.training, entry.attempt, entry.step, entry.policy) == ("run-1", 3, 17, "12~3")
    assert entry.cut.as_dict() == {0: 9, 2: 4}
    assert {number: tree.count for number, tree in entry.log.items()} == {0: 3, 2: 1}
    assert {name: one.step for name, one in entry.sessions.items()} == {"desk-1": 5, "desk-2/é": 9}
    assert entry.adopted is not None
    assert entry.adopted.files[0].path == "a/b.bin"


def test_what_a_rank_brought_to_a_frozen_set_comes_back() -> None:
    value = decode(decode_manifest(SET.read_bytes()).values["training.rank-0"].data)
    assert isinstance(value, bytes)
    state = decode_training_state(value)
    assert state.progress == {"tokens": 5_000_000, "mean": 0.25}
    env = random.Random()
    restore_random(state.random, {"env": env})
    # Seed 7 and 13 draws; seed 5 and none.
    assert [random.random() for _ in range(3)] == [
        0.8268521246720381,
        0.12380196114964559,
        0.22323896460701453,
    ]
    assert env.random() == random.Random(5).random()
