"""Frozen checkpoints of format 1, in every encoding: what was written once is read for ever.

Optimizer states of older releases could not be loaded any more in public (pytorch #146157).
"""

import json
from hashlib import sha256
from pathlib import Path

import pytest

from snapshots.checkpoint_store import CheckpointStore
from snapshots.checkpoints.manifest import ITEM_BYTES, Manifest, encode_manifest
from snapshots.checkpoints.parts import PartReader
from snapshots.tensor_codec import Encoding

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
    shown = {part.encoding for one in EXPECTED for _name, part in manifest_of(one).parts()}
    assert shown == set(Encoding)


@pytest.mark.parametrize("checkpoint", sorted(EXPECTED))
def test_a_manifest_is_written_as_it_always_was(checkpoint: str) -> None:
    ref = STORE.find_checkpoint(checkpoint=checkpoint)
    data = (STORE.set_folder(ref) / "manifest.json").read_bytes()
    assert encode_manifest(STORE.read_manifest(ref)) == data


def test_the_newest_is_the_head() -> None:
    assert STORE.head() == STORE.find_checkpoint(step=2)
