"""The compatibility gate: whether a reader's schema can read all that a writer's schema may write.

Schema resolution as the Avro specification has it (1.12, "Schema Resolution"); names are compared
without their namespace, as it recommends. Every schema is held against the shipped ones before it
is released: the new one must read all that they wrote. Pure.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from eventlog.avro.schema_form import NAMED_TYPES, types_by_name, with_full_names
from eventlog.errors import IncompatibleSchemaError

NAME_MISMATCH: Final = "name_mismatch"
TYPE_MISMATCH: Final = "type_mismatch"
FIXED_SIZE_MISMATCH: Final = "fixed_size_mismatch"
MISSING_ENUM_SYMBOLS: Final = "missing_enum_symbols"
MISSING_UNION_BRANCH: Final = "missing_union_branch"
MISSING_DEFAULT: Final = "reader_field_missing_default_value"

_PROMOTED_TO: Final[Mapping[str, frozenset[str]]] = {
    "int": frozenset(("long", "float", "double")),
    "long": frozenset(("float", "double")),
    "float": frozenset(("double",)),
    "string": frozenset(("bytes",)),
    "bytes": frozenset(("string",)),
}
"""As which other types a written primitive can be read."""


class Problem(NamedTuple):
    """One reason why the reader cannot read what the writer may write.

    `kind` is one of this module's constants; `path` leads to the place in the reader's schema.
    """

    kind: str
    path: str
    detail: str

    def __str__(self) -> str:
        return f"{self.path}: {self.detail} ({self.kind})"


def check_compatible(reader: object, writer: object) -> list[Problem]:
    """Why `reader` cannot read all that `writer` may write; empty where it can.

    Both are schemas as parsed JSON, and may be recursive. Raises `ValueError` for what is none.
    """
    read, written = with_full_names(reader), with_full_names(writer)
    comparison = _Comparison(types_by_name(read), types_by_name(written))
    return list(comparison.problems(read, written, "$"))


def require_compatible(reader: object, writer: object) -> None:
    """Raise `IncompatibleSchemaError`, naming every problem, unless `reader` reads `writer`."""
    problems = check_compatible(reader, writer)
    if problems:
        raise IncompatibleSchemaError(
            "the schema cannot read what the other writes: " + "; ".join(map(str, problems)),
            hint="new fields need a default; new symbols an enum with one; names and sizes stay",
        )


class _Comparison:
    def __init__(self, read: Mapping[str, Any], written: Mapping[str, Any]) -> None:
        self._read = read
        self._written = written
        # Pairs of records under comparison: where a recursive one comes back, it adds no problem.
        self._open: set[tuple[str, str]] = set()

    def problems(self, reader: Any, writer: Any, path: str) -> Iterator[Problem]:
        if isinstance(writer, list):
            for branch in writer:
                yield from self.problems(reader, branch, path)
        elif isinstance(reader, list):
            if not any(self._reads(branch, writer) for branch in reader):
                detail = f"no branch of the reader's union reads {_describe(writer)}"
                yield Problem(MISSING_UNION_BRANCH, path, detail)
        else:
            yield from self._plain_problems(reader, writer, path)

    def _plain_problems(self, reader: Any, writer: Any, path: str) -> Iterator[Problem]:
        reader, writer = _defined(reader, self._read), _defined(writer, self._written)
        kind, written_kind = _kind(reader), _kind(writer)
        if kind != written_kind:
            if kind not in _PROMOTED_TO.get(written_kind, ()):
                detail = f"{_describe(writer)} cannot be read as {_describe(reader)}"
                yield Problem(TYPE_MISMATCH, path, detail)
        elif kind in ("array", "map"):
            inner = "items" if kind == "array" else "values"
            yield from self.problems(reader[inner], writer[inner], f"{path}.{inner}")
        elif kind in NAMED_TYPES:
            yield from self._named_problems(reader, writer, path)

    def _reads(self, reader: Any, writer: Any) -> bool:
        return next(self.problems(reader, writer, ""), None) is None

    def _named_problems(self, reader: Any, writer: Any, path: str) -> Iterator[Problem]:
        if not _same_name(reader, writer):
            detail = f"{_describe(writer)} is neither {_describe(reader)} nor an alias of it"
            yield Problem(NAME_MISMATCH, path, detail)
        elif reader["type"] == "fixed":
            if reader["size"] != writer["size"]:
                detail = f"{writer['size']} bytes cannot be read as {reader['size']}"
                yield Problem(FIXED_SIZE_MISMATCH, path, detail)
        elif reader["type"] == "enum":
            unknown = [each for each in writer["symbols"] if each not in reader["symbols"]]
            if unknown and "default" not in reader:
                detail = f"the reader has no symbol {', '.join(unknown)}, and no default"
                yield Problem(MISSING_ENUM_SYMBOLS, path, detail)
        else:
            yield from self._record_problems(reader, writer, path)

    def _record_problems(self, reader: Any, writer: Any, path: str) -> Iterator[Problem]:
        pair = (reader["name"], writer["name"])
        if pair in self._open:
            return
        self._open.add(pair)
        written = {field["name"]: field for field in writer["fields"]}
        for field in reader["fields"]:
            names = (field["name"], *field.get("aliases", ()))
            found = next((written[name] for name in names if name in written), None)
            place = f"{path}.{field['name']}"
            if found is not None:
                yield from self.problems(field["type"], found["type"], place)
            elif "default" not in field:
                detail = "the writer has no such field, and the reader no default for it"
                yield Problem(MISSING_DEFAULT, place, detail)
        self._open.discard(pair)


def _defined(definition: Any, types: Mapping[str, Any]) -> Any:
    return types.get(definition, definition) if isinstance(definition, str) else definition


def _kind(definition: Any) -> str:
    return definition if isinstance(definition, str) else str(definition["type"])


def _same_name(reader: Mapping[str, Any], writer: Mapping[str, Any]) -> bool:
    if reader["name"].rpartition(".")[2] == writer["name"].rpartition(".")[2]:
        return True
    return writer["name"] in reader.get("aliases", ())


def _describe(definition: Any) -> str:
    if isinstance(definition, str):
        return definition
    return (
        f"{definition['type']} {definition['name']}" if "name" in definition else definition["type"]
    )
