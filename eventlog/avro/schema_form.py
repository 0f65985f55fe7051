"""Avro schemas in normal form: full names, the Parsing Canonical Form, and fingerprints.

Two schemas with one canonical form read each other's bytes as they stand. Pure.
Specification: Apache Avro 1.12, "Names", "Parsing Canonical Form for Schemas", "Schema
Fingerprints".
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

PRIMITIVE_TYPES: Final = frozenset(
    ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
)
NAMED_TYPES: Final = frozenset(("record", "error", "enum", "fixed"))

_CRC_EMPTY: Final = 0xC15D213AA4D7A795
# The attributes that the canonical form keeps, in its order ([STRIP] and [ORDER] in Avro's words).
_CANONICAL_ORDER: Final = ("name", "type", "fields", "symbols", "items", "values", "size")


def with_full_names(definition: object, enclosing: str | None = None) -> Any:
    """A copy of a schema, given as parsed JSON, that reads the same without its surroundings.

    Names, references and aliases are full names; a primitive type is a str; of the rest only what
    decides how data is read stays (no doc, no logical types). `enclosing` is the namespace that
    unqualified names are in. Raises `ValueError` for what is no schema.
    """
    if isinstance(definition, str):
        return definition if definition in PRIMITIVE_TYPES else full_name(definition, enclosing)
    if isinstance(definition, list):
        return [with_full_names(branch, enclosing) for branch in definition]
    if not isinstance(definition, Mapping) or "type" not in definition:
        raise ValueError(f"not an Avro schema: {definition!r}")
    kind = definition["type"]
    if isinstance(kind, str) and kind in NAMED_TYPES:
        return _named_with_full_names(definition, kind, enclosing)
    if kind == "array":
        return {"type": kind, "items": with_full_names(definition.get("items"), enclosing)}
    if kind == "map":
        return {"type": kind, "values": with_full_names(definition.get("values"), enclosing)}
    return with_full_names(kind, enclosing)


def full_name(name: str, enclosing: str | None) -> str:
    """The full name: a name with dots is one; any other is in the enclosing namespace."""
    return name if "." in name or not enclosing else f"{enclosing}.{name}"


def types_by_name(definition: object) -> dict[str, dict[str, Any]]:
    """Every named type that a schema with full names defines."""
    return {each["name"]: each for each in _named_types(definition)}


def canonical_form(definition: object) -> str:
    """The Parsing Canonical Form of a schema, given as parsed JSON. Raises `ValueError`."""
    canonical = _canonical(with_full_names(definition))
    return json.dumps(canonical, ensure_ascii=False, separators=(",", ":"))


def crc64_avro(data: bytes) -> int:
    """CRC-64-AVRO (a Rabin fingerprint) of `data`, as an unsigned number."""
    crc = _CRC_EMPTY
    for byte in data:
        crc = (crc >> 8) ^ _CRC_TABLE[(crc ^ byte) & 0xFF]
    return crc


def fingerprint_of(canonical_text: str) -> bytes:
    """The 8 bytes that name the schema in single-object framing: CRC-64-AVRO, little-endian."""
    return crc64_avro(canonical_text.encode("utf-8")).to_bytes(8, "little")


def sha256_of(canonical_text: str) -> bytes:
    """The SHA-256 fingerprint (32 bytes), which cannot be forged."""
    return hashlib.sha256(canonical_text.encode("utf-8")).digest()


def _named_with_full_names(
    definition: Mapping[str, Any], kind: str, enclosing: str | None
) -> dict[str, Any]:
    name = full_name(definition["name"], definition.get("namespace", enclosing))
    namespace = name.rpartition(".")[0] or None
    named: dict[str, Any] = {"name": name, "type": kind}
    if "aliases" in definition:
        named["aliases"] = [full_name(alias, namespace) for alias in definition["aliases"]]
    if kind == "enum":
        named["symbols"] = list(definition["symbols"])
        if "default" in definition:
            named["default"] = definition["default"]
    elif kind == "fixed":
        named["size"] = int(definition["size"])
    else:
        named["fields"] = [_field_with_full_names(each, namespace) for each in definition["fields"]]
    return named


def _field_with_full_names(field: Mapping[str, Any], namespace: str | None) -> dict[str, Any]:
    kept = {key: field[key] for key in ("name", "default", "aliases") if key in field}
    return kept | {"type": with_full_names(field["type"], namespace)}


def _named_types(definition: Any) -> Iterator[dict[str, Any]]:
    if isinstance(definition, list):
        for branch in definition:
            yield from _named_types(branch)
    elif isinstance(definition, dict):
        if "name" in definition:
            yield definition
        for field in definition.get("fields", ()):
            yield from _named_types(field["type"])
        yield from _named_types(definition.get("items", definition.get("values")))


def _canonical(definition: Any) -> Any:
    if isinstance(definition, list):
        return [_canonical(each) for each in definition]
    if not isinstance(definition, dict):
        return definition
    return {key: _canonical(definition[key]) for key in _CANONICAL_ORDER if key in definition}


def _crc_table() -> tuple[int, ...]:
    rows = []
    for row in range(256):
        crc = row
        for _ in range(8):
            crc = (crc >> 1) ^ (_CRC_EMPTY & -(crc & 1))
        rows.append(crc)
    return tuple(rows)


_CRC_TABLE: Final = _crc_table()
