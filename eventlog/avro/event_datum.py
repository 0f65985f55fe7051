"""Events as the plain datums that fastavro reads and writes, and back: the reference of the codec.

What fastavro writes of `datum_of_event` is what an event's bytes must be; `event_of_datum` is what
a decoded event must be equal to. Led by the schema; records are matched to NamedTuples by name.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from eventlog.content import BlobRef, Content
from eventlog.event import BODY_OF_KIND, Event, Restore, StateChange, StateUnknown, Trace
from eventlog.schema import AvroSchema

RECORD_CLASSES: Final[Mapping[str, type[Any]]] = MappingProxyType(
    {
        f"steplog.{each.__name__}": each
        for each in (
            Event,
            Trace,
            StateChange,
            StateUnknown,
            Restore,
            Content,
            BlobRef,
            *BODY_OF_KIND.values(),
        )
    }
)
"""The NamedTuple of each record of the event schema, by the record's full name."""

_RECORD_NAMES: Final = {each: name for name, each in RECORD_CLASSES.items()}
_PRIMITIVE_NAMES: Final = {str: "string", bytes: "bytes", bool: "boolean", float: "double"}


def datum_of_event(event: Event, schema: AvroSchema) -> object:
    """The event as fastavro writes it: dicts for records, `(name, value)` for a union's branch."""
    return _datum(event, schema.canonical, schema)


def event_of_datum(datum: object, schema: AvroSchema) -> Event:
    """The event that fastavro read with `schema`; its types are trusted."""
    event: Event = _value(datum, schema.canonical, schema)
    return event


def _datum(value: Any, definition: Any, schema: AvroSchema) -> object:
    if isinstance(definition, list):
        return None if value is None else _branch_datum(value, definition, schema)
    if isinstance(definition, str):
        return _datum(value, schema.types[definition], schema) if "." in definition else value
    if definition["type"] == "record":
        return {
            field["name"]: _datum(getattr(value, field["name"]), field["type"], schema)
            for field in definition["fields"]
        }
    if definition["type"] == "map":
        return {key: value[key] for key in sorted(value)}
    return list(value) if definition["type"] == "array" else value


def _branch_datum(value: Any, branches: list[Any], schema: AvroSchema) -> tuple[str, object]:
    if type(value) in _RECORD_NAMES:
        name = _RECORD_NAMES[type(value)]
        return name, _datum(value, schema.types[name], schema)
    name = _PRIMITIVE_NAMES.get(type(value), "long")
    if name not in branches:
        (name,) = (branch for branch in branches if branch in schema.types)
    return name, value


def _value(datum: Any, definition: Any, schema: AvroSchema) -> Any:
    if isinstance(definition, list):
        if isinstance(datum, tuple):
            name, datum = datum
            return _value(datum, name, schema)
        # fastavro names a branch only where a union has several records.
        records = [each for each in branches_of(definition, schema) if each["type"] == "record"]
        return _value(datum, records[0], schema) if isinstance(datum, dict) else datum
    if isinstance(definition, str):
        return _value(datum, schema.types[definition], schema) if "." in definition else datum
    if definition["type"] == "record":
        cls = RECORD_CLASSES[definition["name"]]
        return cls(
            **{
                field["name"]: _value(datum[field["name"]], field["type"], schema)
                for field in definition["fields"]
            }
        )
    if definition["type"] == "map":
        return MappingProxyType(datum)
    return tuple(datum) if definition["type"] == "array" else datum


def branches_of(union: list[Any], schema: AvroSchema) -> list[dict[str, Any]]:
    """The named types among a union's branches, each by its definition."""
    names = [each["name"] if isinstance(each, dict) else each for each in union]
    return [schema.types[name] for name in names if name in schema.types]
