"""The compatibility gate: Avro's own verdicts, and enums that gain a symbol (case D10)."""

import copy
import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from eventlog.avro.event_datum import datum_of_event, event_of_datum
from eventlog.avro.event_form import EVENT_SCHEMA
from eventlog.codec import decode_event, encode_event
from eventlog.content import Content
from eventlog.errors import IncompatibleSchemaError, UnknownSchemaError
from eventlog.event import Event, LineHead, SessionSeeded, ToolCalled, ToolReturned
from eventlog.schema import HEADER_BYTES, AvroSchema
from eventlog.schema_gate import check_compatible, require_compatible
from tests.support.data import data_path


def test_avros_verdicts() -> None:
    text = data_path("vectors", "avro", "reader_writer_compatibility.json").read_text()
    pairs = json.loads(text)
    assert len(pairs) == 66
    for pair in pairs:
        problems = check_compatible(pair["reader"], pair["writer"])
        assert (not problems) == pair["compatible"], pair
        assert Counter(each.kind for each in problems) == Counter(pair["incompatibilities"]), pair


def test_recursive_schemas() -> None:
    def tree(size: int) -> dict[str, Any]:
        leaf = {"type": "fixed", "name": "Leaf", "size": size}
        return {
            "type": "record",
            "name": "Tree",
            "fields": [
                {"name": "children", "type": {"type": "array", "items": "Tree"}},
                {"name": "leaf", "type": leaf},
            ],
        }

    assert check_compatible(tree(4), tree(4)) == []
    (problem,) = check_compatible(tree(4), tree(8))
    assert str(problem) == "$.leaf: 8 bytes cannot be read as 4 (fixed_size_mismatch)"


def test_a_field_is_found_by_its_alias() -> None:
    writer = {"type": "record", "name": "R", "fields": [{"name": "old", "type": "int"}]}
    reader = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "new", "type": "long", "aliases": ["old"]}],
    }
    assert check_compatible(reader, writer) == []


def test_every_problem_is_named() -> None:
    reader = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": ["null", "int"]}],
    }
    writer = {"type": "record", "name": "R", "fields": [{"name": "b", "type": "string"}]}
    with pytest.raises(IncompatibleSchemaError) as caught:
        require_compatible(reader, writer)
    assert "$.a" in caught.value.message
    assert "$.b" in caught.value.message
    require_compatible(reader, reader)


# D10: a schema of tomorrow, whose enums have one symbol more. fastavro/fastavro#488.

HEAD = LineHead("s", 4, 1, bytes(32))


def event(body: Any) -> Event:
    return Event.following(HEAD, body, event_id=bytes(16), time=0, actor="tool")


def grown(definition: object, enum: str) -> AvroSchema:
    """The event schema with the symbol `later` added to `enum`."""
    later = copy.deepcopy(definition)

    def grow(node: object) -> None:
        if isinstance(node, dict):
            if node.get("name") == enum and node["type"] == "enum":
                node["symbols"].append("later")
            for each in node.values():
                grow(each)
        elif isinstance(node, list):
            for each in node:
                grow(each)

    grow(later)
    return AvroSchema(later)


OLD_BODIES = [
    SessionSeeded("desk", state_coverage="none"),
    ToolCalled("lookup", Content("text/plain", b"x"), effects="pure"),
    ToolReturned(3, "interrupted"),
]


@pytest.mark.parametrize("enum", ["ReturnStatus", "Effects", "EffectKind", "StateCoverage"])
@pytest.mark.parametrize("body", OLD_BODIES)
def test_old_events_read_with_a_schema_whose_enum_grew(enum: str, body: Any) -> None:
    later = grown(EVENT_SCHEMA.definition, enum)
    assert check_compatible(later.definition, EVENT_SCHEMA.definition) == []
    old = encode_event(event(body))
    datum = EVENT_SCHEMA.read_datum_as(later, old.data, HEADER_BYTES)
    assert event_of_datum(datum, later) == old.event


def written_later(enum: str, body: Any) -> tuple[AvroSchema, bytes]:
    later = grown(EVENT_SCHEMA.definition, enum)
    return later, later.header + later.write_datum(datum_of_event(event(body), later))


def test_a_new_symbol_falls_to_the_declared_default() -> None:
    called = ToolCalled("lookup", Content("text/plain", b"x"), effects="later")
    later, data = written_later("Effects", called)
    assert check_compatible(EVENT_SCHEMA.definition, later.definition) == []
    datum = later.read_datum_as(EVENT_SCHEMA, data, HEADER_BYTES)
    read = event_of_datum(datum, EVENT_SCHEMA)
    assert read == event(called._replace(effects="unknown"))


@pytest.mark.parametrize(
    ("enum", "body"),
    [
        ("ReturnStatus", ToolReturned(3, "later")),
        ("StateCoverage", SessionSeeded("desk", state_coverage="later")),
    ],
)
def test_a_new_symbol_without_default_is_a_clear_error(enum: str, body: Any) -> None:
    later, data = written_later(enum, body)
    (problem,) = check_compatible(EVENT_SCHEMA.definition, later.definition)
    assert problem.kind == "missing_union_branch"
    with pytest.raises(IncompatibleSchemaError, match="later"):
        later.read_datum_as(EVENT_SCHEMA, data, HEADER_BYTES)


def test_an_old_symbol_still_reads_where_a_new_one_would_not() -> None:
    later, data = written_later("ReturnStatus", ToolReturned(3, "ok"))
    datum = later.read_datum_as(EVENT_SCHEMA, data, HEADER_BYTES)
    assert event_of_datum(datum, EVENT_SCHEMA) == event(ToolReturned(3, "ok"))


def test_the_codec_never_resolves_by_itself() -> None:
    """What a schema of tomorrow wrote stops the reader: only shipped schemas decode."""
    later, data = written_later("ReturnStatus", ToolReturned(3, "later"))
    with pytest.raises(UnknownSchemaError, match=later.fingerprint[::-1].hex()) as caught:
        decode_event(data)
    assert (caught.value.session_id, caught.value.step) == ("s", 5)
    assert "tool_returned" in caught.value.message


@pytest.mark.parametrize("default", [None, "A"])
def test_a_nullable_enum_that_gains_a_symbol(default: str | None) -> None:
    """The case as it was reported: ["null", enum A,B] becomes ["null", enum A,B,C]."""

    def schema(*symbols: str) -> AvroSchema:
        enum: dict[str, Any] = {"type": "enum", "name": "E", "symbols": list(symbols)}
        if default is not None:
            enum["default"] = default
        fields = [{"name": "e", "type": ["null", enum]}]
        return AvroSchema({"type": "record", "name": "R", "fields": fields})

    old, new = schema("A", "B"), schema("A", "B", "C")
    for value in (None, ("E", "B")):
        data = old.write_datum({"e": value})
        expected = {"e": None if value is None else "B"}
        assert old.read_datum_as(new, data) == expected
        assert new.read_datum_as(old, new.write_datum({"e": value})) == expected
    unknown = new.write_datum({"e": ("E", "C")})
    read: Callable[[], object] = lambda: new.read_datum_as(old, unknown)  # noqa: E731
    if default is None:
        assert check_compatible(old.definition, new.definition) != []
        with pytest.raises(IncompatibleSchemaError, match="C"):
            read()
    else:
        assert check_compatible(old.definition, new.definition) == []
        assert read() == {"e": "A"}
