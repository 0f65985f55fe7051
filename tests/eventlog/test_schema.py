"""Shipped schemas: what the event schema says, its frozen canonical form, and the registry."""

import io
import json
import os
from pathlib import Path
from typing import Any, get_args, get_type_hints

import fastavro
import pytest

from eventlog.avro.event_datum import RECORD_CLASSES
from eventlog.avro.event_form import EVENT_SCHEMA, EVENT_SCHEMAS
from eventlog.avro.schema_form import canonical_form, fingerprint_of, sha256_of
from eventlog.content import BlobRef, Content
from eventlog.errors import UnknownSchemaError
from eventlog.event import BODY_OF_KIND, Event
from eventlog.schema import (
    HEADER_BYTES,
    AvroDataError,
    AvroSchema,
    SchemaRegistry,
    describe_fingerprint,
)
from tests.support.data import data_path

GOLDEN = Path(__file__).parents[1] / "golden" / "schemas" / "event-v1.txt"


def published(schema: AvroSchema) -> str:
    """What we publish of a schema, for other tools and for the check that it never changes."""
    return (
        f"name: {schema.name}\n"
        f"crc-64-avro: {describe_fingerprint(schema.fingerprint)}\n"
        f"single-object header: {schema.header.hex()}\n"
        f"sha-256: {schema.sha256.hex()}\n"
        f"canonical form: {schema.canonical_text}\n"
    )


def test_the_event_schema_never_changes() -> None:
    if os.environ.get("STEPLOG_WRITE_GOLDEN") == "1":
        GOLDEN.write_text(published(EVENT_SCHEMA), encoding="utf-8")
    assert published(EVENT_SCHEMA) == GOLDEN.read_text(encoding="utf-8")


def test_the_published_fingerprints_are_those_of_the_published_text() -> None:
    lines = dict(line.split(": ", 1) for line in GOLDEN.read_text(encoding="utf-8").splitlines())
    text = lines["canonical form"]
    assert canonical_form(json.loads(text)) == text
    assert sha256_of(text).hex() == lines["sha-256"]
    assert lines["single-object header"] == "c301" + fingerprint_of(text).hex()


def test_the_order_of_the_envelope() -> None:
    names = [field["name"] for field in EVENT_SCHEMA.canonical["fields"]]
    assert names == list(Event._fields)
    assert names[:7] == [
        "event_id", "session_id", "step", "attempt", "kind", "parent", "state_change",
    ]  # fmt: skip


def test_every_body_is_a_branch_and_every_kind_a_body() -> None:
    (body,) = (each for each in EVENT_SCHEMA.canonical["fields"] if each["name"] == "body")
    branches = [f"steplog.{each.__name__}" for each in BODY_OF_KIND.values()]
    assert [each["name"] for each in body["type"]] == branches


@pytest.mark.parametrize("name", sorted(RECORD_CLASSES))
def test_records_and_their_classes_have_the_same_fields(name: str) -> None:
    cls = RECORD_CLASSES[name]
    fields = {each["name"]: each["type"] for each in EVENT_SCHEMA.types[name]["fields"]}
    assert set(fields) == set(cls._fields)
    for field, hint in get_type_hints(cls).items():
        nullable = isinstance(fields[field], list) and "null" in fields[field]
        assert nullable == (type(None) in get_args(hint)), field


def test_the_file_says_what_other_tools_want_to_know() -> None:
    """Times are timestamps, what may be null is null by default, status has no default."""
    definition: Any = EVENT_SCHEMA.definition
    found: dict[str, Any] = {}

    def visit(node: Any) -> None:
        if isinstance(node, dict):
            if node.get("type") == "enum":
                found[node["name"]] = node.get("default")
            if isinstance(node.get("type"), list) and node["type"][0] == "null":
                assert node["default"] is None, node["name"]
        for each in node.values() if isinstance(node, dict) else node:
            if isinstance(each, dict | list):
                visit(each)

    visit(definition)
    assert found == {
        "Effects": "unknown",
        "EffectKind": "other",
        "ReturnStatus": None,
        "StateCoverage": None,
    }
    (time,) = (each for each in definition["fields"] if each["name"] == "time")
    assert time["type"] == {"type": "long", "logicalType": "timestamp-micros"}
    (codec_time,) = (each for each in EVENT_SCHEMA.canonical["fields"] if each["name"] == "time")
    assert codec_time["type"] == "long"


def test_a_cut_schema_reads_the_head_of_a_datum() -> None:
    fields = [{"name": name, "type": "long"} for name in "abc"]
    whole = AvroSchema({"type": "record", "name": "R", "fields": fields})
    data = whole.write_datum({"a": 1, "b": 2, "c": 3})
    assert whole.cut_after("b").read_datum(data) == ({"a": 1, "b": 2}, 2)


def test_the_registry_finds_by_header() -> None:
    assert EVENT_SCHEMAS.find(EVENT_SCHEMA.header + b"rest") is EVENT_SCHEMA
    unknown = b"\xc3\x01" + bytes(range(8))
    with pytest.raises(UnknownSchemaError, match="0706050403020100"):
        EVENT_SCHEMAS.find(unknown)
    for data in (b"", b"\xc3", b"\xc3\x01abc", b"\x00" * 12):
        with pytest.raises(AvroDataError, match="header"):
            EVENT_SCHEMAS.find(data)


def test_the_registry_knows_a_definition_by_its_sha256() -> None:
    assert EVENT_SCHEMAS.find_definition(EVENT_SCHEMA.definition) is EVENT_SCHEMA
    with pytest.raises(UnknownSchemaError):
        EVENT_SCHEMAS.find_definition("string")


def forged(schema: AvroSchema) -> dict[str, Any]:
    """Another schema of the same CRC-64 fingerprint.

    The CRC is linear over GF(2): of 80 letters, each `a` or `b`, 64 independent ones decide it.
    """
    letters = 80
    wanted = int.from_bytes(schema.fingerprint, "little")

    def definition(choice: int) -> dict[str, Any]:
        name = "".join("b" if choice >> at & 1 else "a" for at in range(letters))
        return {"type": "record", "name": name, "fields": []}

    def crc(choice: int) -> int:
        return int.from_bytes(fingerprint_of(canonical_form(definition(choice))), "little")

    basis: dict[int, tuple[int, int]] = {}

    def reduce(value: int, choice: int) -> tuple[int, int]:
        for bit in sorted(basis, reverse=True):
            if value >> bit & 1:
                value, choice = value ^ basis[bit][0], choice ^ basis[bit][1]
        return value, choice

    for at in range(letters):
        value, choice = reduce(crc(1 << at) ^ crc(0), 1 << at)
        if value:
            basis[value.bit_length() - 1] = (value, choice)
    rest, choice = reduce(wanted ^ crc(0), 0)
    assert rest == 0
    return definition(choice)


def test_a_forged_fingerprint_does_not_pass() -> None:
    definition = forged(EVENT_SCHEMA)
    assert AvroSchema(definition).fingerprint == EVENT_SCHEMA.fingerprint
    with pytest.raises(UnknownSchemaError, match="forged"):
        EVENT_SCHEMAS.find_definition(definition)


# Avro's own files. Those of other containers (`*.avro`) and of other schemas' defaults do not touch
# our code: fastavro alone reads containers, and events are never resolved against a foreign schema.


def test_avros_single_object_message() -> None:
    schema = AvroSchema(json.loads(data_path("vectors", "avro", "test_schema.avsc").read_text()))
    data = data_path("vectors", "avro", "test_message.bin").read_bytes()
    assert SchemaRegistry([schema]).find(data) is schema
    datum, end = schema.read_datum(data, HEADER_BYTES)
    assert datum == {"id": 42, "name": "Bill", "tags": ["dog_lover", "cat_hater"]}
    assert end == len(data)
    assert schema.header + schema.write_datum(datum) == data


def test_avros_weather_records_read_and_write_alike() -> None:
    """The records of the container, one by one through our schema object."""
    schema = AvroSchema(json.loads(data_path("vectors", "avro", "weather.avsc").read_text()))
    data = data_path("vectors", "avro", "weather.avro").read_bytes()
    records = list(fastavro.reader(io.BytesIO(data)))
    lines = data_path("vectors", "avro", "weather.json").read_text().splitlines()
    assert records == [json.loads(line) for line in lines]
    for record in records:
        written = schema.write_datum(record)
        assert schema.read_datum(written) == (record, len(written))


def test_damaged_data_is_one_error() -> None:
    schema = AvroSchema(json.loads(data_path("vectors", "avro", "test_schema.avsc").read_text()))
    data = data_path("vectors", "avro", "test_message.bin").read_bytes()
    for end in range(HEADER_BYTES, len(data)):
        with pytest.raises(AvroDataError, match="TestMessage"):
            schema.read_datum(data[:end], HEADER_BYTES)


def test_a_blob_stands_only_in_a_content() -> None:
    assert get_type_hints(Content)["data"] == bytes | BlobRef
    holders = [
        name
        for name, definition in EVENT_SCHEMA.types.items()
        if "steplog.BlobRef" in json.dumps(definition.get("fields", []))
        and name not in ("steplog.Event", "steplog.StateChange")
    ]
    assert holders == ["steplog.Content"]
