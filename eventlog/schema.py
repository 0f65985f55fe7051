"""Avro schemas that ship with steplog: loading, fingerprints, and finding them by fingerprint.

Stored bytes name their schema by an 8-byte fingerprint, and only a shipped schema is ever used to
read them: nothing stored brings its own. A fingerprint can be forged, so a definition that comes
from elsewhere is compared by the SHA-256 of its canonical form. The event codec and the snapshots
use it; the only module that imports fastavro.
"""

import io
import json
from collections.abc import Iterable
from importlib import resources
from typing import Any, Final

from fastavro import parse_schema, schemaless_reader, schemaless_writer
from fastavro.read import SchemaResolutionError

from eventlog.avro.schema_form import (
    canonical_form,
    fingerprint_of,
    sha256_of,
    types_by_name,
    with_full_names,
)
from eventlog.errors import IncompatibleSchemaError, UnknownSchemaError

SINGLE_OBJECT_MARK: Final = b"\xc3\x01"
HEADER_BYTES: Final = len(SINGLE_OBJECT_MARK) + 8

_READ_ERRORS: Final = (
    EOFError,
    IndexError,
    KeyError,
    MemoryError,
    OverflowError,
    TypeError,
    ValueError,
)


class AvroDataError(ValueError):
    """Bytes are not a datum of the schema they are read with. Callers turn it into their own."""


class AvroSchema:
    """One schema: its definition, canonical form and fingerprints. Immutable by convention.

    `definition` is the schema as its file has it; `canonical` what the canonical form says, parsed:
    full names, nothing but what decides the bytes. `types` are the named types of `canonical` by
    full name. `fingerprint` is the 8 bytes of single-object framing, `sha256` the 32 that cannot be
    forged, `header` what stands before each datum (10 bytes).
    """

    def __init__(self, definition: object) -> None:
        self.definition = definition
        self.canonical_text = canonical_form(definition)
        self.canonical: Any = json.loads(self.canonical_text)
        self.types = types_by_name(self.canonical)
        self.fingerprint = fingerprint_of(self.canonical_text)
        self.sha256 = sha256_of(self.canonical_text)
        self.header = SINGLE_OBJECT_MARK + self.fingerprint
        # The canonical form has no logical types: the bytes are the same, and fastavro leaves times
        # as integers (and is 1-2 us a field faster).
        self._parsed = parse_schema(self.canonical)

    @property
    def name(self) -> str:
        """The full name of the schema's record, as `steplog.Event`."""
        return str(self.canonical["name"])

    def cut_after(self, field: str) -> "AvroSchema":
        """The record's fields up to and including `field` only: reads that much of its datums."""
        fields = self.canonical["fields"]
        names = [each["name"] for each in fields]
        return AvroSchema({**self.canonical, "fields": fields[: names.index(field) + 1]})

    def write_datum(self, datum: object) -> bytes:
        """The Avro binary form of `datum` as fastavro writes it, without header.

        A branch of a union is named by a tuple `(name, value)`. Types are the caller's to check.
        """
        out = io.BytesIO()
        schemaless_writer(out, self._parsed, datum)
        return out.getvalue()

    def read_datum(self, data: bytes, start: int = 0) -> tuple[object, int]:
        """The datum at `start` of `data`, and the position after it.

        Where a union has several records, the datum is a tuple `(record name, fields)`. Raises
        `AvroDataError` where the bytes are not of the schema.
        """
        source = io.BytesIO(data)
        source.seek(start)
        try:
            datum = schemaless_reader(source, self._parsed, None, True, True)
        except _READ_ERRORS as error:
            raise AvroDataError(f"not a datum of {self.name}: {error}") from error
        return datum, source.tell()

    def read_datum_as(self, reader: "AvroSchema", data: bytes, start: int = 0) -> object:
        """The datum written with this schema, as `reader` has it (Avro's schema resolution).

        Fields that only `reader` has take their default, as does an enum's unknown symbol. Raises
        `IncompatibleSchemaError` where `reader` cannot take this datum, else as `read_datum`.
        """
        self.read_datum(data, start)
        source = io.BytesIO(data)
        source.seek(start)
        try:
            # Defaults and aliases are not in the canonical form.
            resolving = parse_schema(with_full_names(reader.definition))
            return schemaless_reader(source, self._parsed, resolving, True, True)
        except SchemaResolutionError as error:
            raise IncompatibleSchemaError(
                f"{reader.name} of fingerprint {describe_fingerprint(reader.fingerprint)} cannot "
                f"read what {describe_fingerprint(self.fingerprint)} wrote: {error}",
                hint="read it with the version that wrote it, or a newer one",
            ) from error


def load_schema(package: str, file_name: str) -> AvroSchema:
    """The schema shipped as `schemas/<file_name>` in `package`."""
    text = resources.files(package).joinpath("schemas", file_name).read_text(encoding="utf-8")
    return AvroSchema(json.loads(text))


class SchemaRegistry:
    """The shipped schemas of one kind of record, found by fingerprint."""

    def __init__(self, schemas: Iterable[AvroSchema]) -> None:
        self._by_header = {schema.header: schema for schema in schemas}

    @property
    def schemas(self) -> tuple[AvroSchema, ...]:
        """All of them."""
        return tuple(self._by_header.values())

    def find(self, data: bytes) -> AvroSchema:
        """The schema named by the header of single-object `data`.

        Raises `AvroDataError` where there is no such header, `UnknownSchemaError` naming the
        fingerprint where no shipped schema has it.
        """
        header = data[:HEADER_BYTES]
        schema = self._by_header.get(header)
        if schema is not None:
            return schema
        if len(header) < HEADER_BYTES or not header.startswith(SINGLE_OBJECT_MARK):
            raise AvroDataError(f"no single-object header: the bytes begin with {header.hex()!r}")
        raise UnknownSchemaError(
            f"no schema of fingerprint {describe_fingerprint(header[2:])} ships with this build",
            hint="a newer steplog wrote it, or the bytes are damaged: read it with that version",
        )

    def find_definition(self, definition: object) -> AvroSchema:
        """The shipped schema that `definition` is, by the SHA-256 of its canonical form.

        Raises `UnknownSchemaError` where none is, also where only the fingerprint agrees.
        """
        text = canonical_form(definition)
        header = SINGLE_OBJECT_MARK + fingerprint_of(text)
        schema = self._by_header.get(header)
        if schema is not None and schema.sha256 == sha256_of(text):
            return schema
        alike = " (its fingerprint is a shipped one: forged)" if schema is not None else ""
        raise UnknownSchemaError(
            f"the schema of fingerprint {describe_fingerprint(header[2:])} does not ship with "
            f"this build{alike}",
            hint="only shipped schemas decode; compare it with `eventlog/schemas/`",
        )


def describe_fingerprint(fingerprint: bytes) -> str:
    """A fingerprint as people write it: 16 hex digits, most significant first."""
    return fingerprint[::-1].hex()
