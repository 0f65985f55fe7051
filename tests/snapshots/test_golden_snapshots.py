"""Snapshots of version 1, frozen: they must be read for ever, by us and by public tools alone."""

import io
import json
from hashlib import sha256
from pathlib import Path

import fastavro
import pytest
import zstandard

from snapshots.snapshot import decode_record, encode_record, restore_snapshot

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "snapshots"
EXPECTED = json.loads((GOLDEN / "expected.json").read_text(encoding="utf-8"))
CANONICAL_TEXT = (GOLDEN / "snapshot-v1.canonical.json").read_text(encoding="utf-8").rstrip("\n")
FINGERPRINT = bytes.fromhex("a7bb8abb7cdd0f27")  # CRC-64-AVRO, little-endian


def base_of(name: str) -> bytes | None:
    return bytes.fromhex(EXPECTED["full.snap"]["state"]) if name == "delta.snap" else None


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_frozen_snapshot_is_read(name: str) -> None:
    data = (GOLDEN / name).read_bytes()
    expected = EXPECTED[name]
    assert sha256(data).hexdigest() == expected["file_sha256"]
    record = decode_record(data)
    plain = {
        field: value.hex() if isinstance(value, bytes) else value
        for field, value in record._asdict().items()
    }
    plain["body"] = f"{len(record.body)} bytes, SHA-256 {sha256(record.body).hexdigest()}"
    assert plain == {field: expected[field] for field in plain}
    assert restore_snapshot(record, base_of(name)).state.hex() == expected["state"]


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_the_same_fields_give_the_same_bytes(name: str) -> None:
    """All but the zstd frame, whose bytes are its library's choice."""
    data = (GOLDEN / name).read_bytes()
    assert encode_record(decode_record(data)) == data


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_public_libraries_read_it_with_the_published_schema(name: str) -> None:
    data = (GOLDEN / name).read_bytes()
    assert data[:10] == b"\xc3\x01" + FINGERPRINT
    schema = fastavro.parse_schema(json.loads(CANONICAL_TEXT))
    fields = fastavro.schemaless_reader(io.BytesIO(data[10:]), schema, None)
    base = base_of(name)
    prefix = (
        zstandard.ZstdCompressionDict(base, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
        if base is not None
        else None
    )
    state = zstandard.ZstdDecompressor(dict_data=prefix).decompress(fields["body"])
    assert state.hex() == EXPECTED[name]["state"]
    assert sha256(state).digest() == fields["state_digest"]
    assert len(state) == fields["raw_size"]


def test_the_published_schema_has_the_fingerprint() -> None:
    assert fastavro.schema.fingerprint(CANONICAL_TEXT, "CRC-64-AVRO") == FINGERPRINT.hex()
