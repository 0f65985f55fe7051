"""Events as the plain datums that fastavro reads and writes, and back.

Everything is led by the schema's definition and the NamedTuples of `event.py` and `content.py`,
matched by name. `datum_of_event` is the reference for the codec's own encoder: what fastavro
writes of it is what an event's bytes must be.
"""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from eventlog.content import BlobRef, Content
from eventlog.event import BODY_OF_KIND, Event, Restore, StateChange, StateUnknown, Trace
from eventlog.schema_form import NAMED_TYPES, PRIMITIVE_TYPES

NAMESPACE: Final = "steplog"
RECORD_CLASSES: Final[Mapping[str, type[Any]]] = MappingProxyType(
    {
        f"{NAMESPACE}.{each.__name__}": each
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

_NAME_OF_PYTHON_TYPE: Final = {str: "string", bytes: "bytes", bool: "boolean", float: "double"}


def named_types(definition: object) -> dict[str, dict[str, Any]]:
    """Every named type of a schema of ours, by full name."""
    return {f"{NAMESPACE}.{each['name']}": each for each in _named(definition)}


def datum_of_event(event: Event, definition: dict[str, Any]) -> object:
    """The event as fastavro writes it: dicts for records, `(name, value)` for a union's branch."""
    return _datum(event, definition, named_types(definition))


def _named(definition: object) -> Iterator[dict[str, Any]]:
    if isinstance(definition, list):
        for branch in definition:
            yield from _named(branch)
    elif isinstance(definition, dict):
        if definition["type"] in NAMED_TYPES:
            yield definition
        for field in definition.get("fields", ()):
            yield from _named(field["type"])


def _datum(value: Any, definition: Any, named: Mapping[str, dict[str, Any]]) -> object:
    if isinstance(definition, list):
        return None if value is None else _branch_datum(value, definition, named)
    if isinstance(definition, str):
        if definition in PRIMITIVE_TYPES:
            return value
        definition = named[f"{NAMESPACE}.{definition}"]
    kind = definition["type"]
    if kind == "record":
        return {
            field["name"]: _datum(getattr(value, field["name"]), field["type"], named)
            for field in definition["fields"]
        }
    if kind == "map":
        return {key: value[key] for key in sorted(value)}
    return list(value) if kind == "array" else value


def _branch_datum(
    value: object, branches: list[Any], named: Mapping[str, dict[str, Any]]
) -> tuple[str, object]:
    name = f"{NAMESPACE}.{type(value).__name__}"
    if name in named:
        return name, _datum(value, named[name], named)
    plain = _NAME_OF_PYTHON_TYPE.get(type(value), "long")
    if plain in branches:
        return plain, value
    (fixed,) = (branch for branch in branches if branch not in PRIMITIVE_TYPES)
    return f"{NAMESPACE}.{fixed}", value


def event_builder(definition: dict[str, Any], cls: type[Any] = Event) -> Callable[[Any], Any]:
    """A function from what fastavro read with `definition` to the NamedTuple `cls`.

    It trusts the datum; a branch of a union of several records comes as `(record name, fields)`.
    """
    return _record_builder(definition, cls, named_types(definition), {})


_Build = Callable[[Any], Any]


def _builder(
    definition: Any, named: Mapping[str, dict[str, Any]], made: dict[str, _Build]
) -> Any:
    if isinstance(definition, list):
        return _union_builder(definition, named, made)
    if isinstance(definition, str):
        if definition in PRIMITIVE_TYPES:
            return None
        definition = named[f"{NAMESPACE}.{definition}"]
    kind = definition["type"]
    if kind == "map":
        return MappingProxyType
    if kind == "array":
        return tuple
    if kind != "record":
        return None
    name = definition["name"]
    if name not in made:
        cls = RECORD_CLASSES[f"{NAMESPACE}.{name}"]
        made[name] = _record_builder(definition, cls, named, made)
    return made[name]


def _record_builder(
    definition: dict[str, Any],
    cls: type[Any],
    named: Mapping[str, dict[str, Any]],
    made: dict[str, _Build],
) -> _Build:
    built = [
        (field["name"], build)
        for field in definition["fields"]
        if (build := _builder(field["type"], named, made)) is not None
    ]

    def build(fields: dict[str, Any]) -> Any:
        for name, build_field in built:
            value = fields[name]
            if value is not None:
                fields[name] = build_field(value)
        return cls(**fields)

    return build


def _union_builder(
    branches: list[Any], named: Mapping[str, dict[str, Any]], made: dict[str, _Build]
) -> _Build | None:
    builds = {
        f"{NAMESPACE}.{branch if isinstance(branch, str) else branch['name']}": build
        for branch in branches
        if (build := _builder(branch, named, made)) is not None
    }
    if not builds:
        return None
    if len(builds) == 1:
        (only,) = builds.values()
        return lambda value: only(value) if type(value) is dict else value
    return lambda value: builds[value[0]](value[1])
