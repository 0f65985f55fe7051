"""The manifest: written and read back the same, and nothing odd in it is ever believed."""

import json
import random
from contextlib import suppress
from typing import Any

import pytest

from eventlog.errors import CheckpointError
from snapshots.checkpoints.manifest import (
    CheckpointRef,
    Chunk,
    Manifest,
    Part,
    StoredObject,
    TensorEntry,
    ValueEntry,
    decode_manifest,
    encode_manifest,
)
from snapshots.tensor_codec import PART_BYTES_MAX, Encoding

ONE = StoredObject("1" * 64, 100)
TWO = StoredObject("2" * 64, 40)
MANIFEST = Manifest(
    id="abc-1",
    training_step=7,
    world_size=4,
    created_ns=10**18,
    versions={"torch": "2.6.0"},
    generation=3,
    ancestor=CheckpointRef(6, "abc-0", "0" * 64),
    tensors={
        "model.0.weight": TensorEntry(
            "bfloat16",
            (4, 30),
            (
                Chunk((0, 0), (2, 30), (Part("a" * 64, 120, Encoding.PLANES, ONE, 0, 100),)),
                Chunk((2, 0), (2, 30), (Part("b" * 64, 120, Encoding.XOR, TWO, 8, 32, "c" * 64),)),
            ),
            ("model", "0.weight"),
        ),
        "step": TensorEntry(
            "int64", (), (Chunk((), (), (Part("d" * 64, 8, Encoding.RAW, TWO, 0, 8),)),), ("step",)
        ),
        "empty": TensorEntry("float32", (0, 4), (Chunk((0, 0), (0, 4), ()),), ("empty",)),
    },
    values={"lr": ValueEntry(b"\xcb1234567", ("optim", 0, "lr"))},
)
BYTES = encode_manifest(MANIFEST)


def altered(**fields: object) -> bytes:
    return json.dumps(json.loads(BYTES) | fields).encode()


def with_tensor(name: str, change: Any) -> bytes:
    read = json.loads(BYTES)
    change(read["tensors"][name])
    return json.dumps(read).encode()


def part_of(tensor: dict[str, Any], chunk: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = tensor["chunks"][chunk]["parts"][0]
    return found


def test_it_is_read_as_it_was_written() -> None:
    assert decode_manifest(BYTES) == MANIFEST
    assert encode_manifest(decode_manifest(BYTES)) == BYTES


def test_it_is_json_that_anyone_reads() -> None:
    text = BYTES.decode()
    assert text == json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x80\x04K\x01.", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "not an object"),
        (b'{"format":1,"format":1}', "twice"),
        (b'{"format":NaN}', "no number"),
        (altered(format=2), "format is 2"),
        (altered(format=True, extra=1), "wrong fields"),
        (altered(extra=1), "wrong fields"),
        (altered(id="../up"), "is not one"),
        (altered(training_step=-1), "no count"),
        (altered(training_step=1.0), "no count"),
        (altered(training_step=True), "no count"),
        (altered(training_step=10**40), "no count"),
        (altered(generation=0), "does not fit its ancestor"),
        (altered(ancestor=None, generation=0), "no ancestor"),
        (altered(objects=[]), "lies in object"),
        (altered(objects=[{"bytes": 1, "sha256": "x"}]), "no SHA-256"),
        (altered(values={"lr": {"data": "%"}}), "not base64"),
        (altered(values={"": {"data": ""}}), "characters"),
        (altered(values={"step": {"data": ""}}), "for a tensor and for a value"),
        (altered(values={"lr": {"data": "", "path": [None]}}), "neither text nor number"),
        (with_tensor("step", lambda t: t.update(dtype="object")), "dtype 'object'"),
        (with_tensor("step", lambda t: t.update(shape=[2])), "hold"),
        (with_tensor("step", lambda t: t.update(shape=[1] * 65)), "65 dimensions"),
        (with_tensor("step", lambda t: t.update(chunks=t["chunks"] * 2)), "hold 2 numbers of 1"),
        (with_tensor("model.0.weight", lambda t: t["chunks"][0].update(offset=[3, 0])), "outside"),
        (
            with_tensor("model.0.weight", lambda t: t["chunks"][0].update(offset=[2, 0])),
            "one place",
        ),
        (with_tensor("step", lambda t: part_of(t).update(length=41)), "outside of its object"),
        (with_tensor("step", lambda t: part_of(t).update(encoding="pickle")), "'pickle'"),
        (with_tensor("step", lambda t: part_of(t).update(encoding=["raw"])), "is not known"),
        (with_tensor("step", lambda t: part_of(t).update(encoding="xor+zstd")), "fit its base"),
        (with_tensor("step", lambda t: part_of(t).update(base="e" * 64)), "fit its base"),
        (with_tensor("step", lambda t: part_of(t).update(bytes=9)), "cannot hold 9"),
        (
            with_tensor("empty", lambda t: t["chunks"][0].update(parts=[{"object": 0}])),
            "wrong fields",
        ),
        (
            with_tensor("model.0.weight", lambda t: part_of(t).update(bytes=PART_BYTES_MAX + 2)),
            "cannot hold",
        ),
    ],
)
def test_what_is_odd_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        decode_manifest(data)


def test_no_altered_byte_raises_anything_else() -> None:
    chance = random.Random(2)
    for _ in range(2000):
        data = bytearray(BYTES)
        for _ in range(chance.randint(1, 3)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        with suppress(CheckpointError):
            decode_manifest(bytes(data))
