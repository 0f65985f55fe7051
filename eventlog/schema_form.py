"""Avro Parsing Canonical Form and the fingerprints of a schema, as the Avro specification has them.

Two schemas with one canonical form read each other's bytes as they stand. Pure.
Specification: Apache Avro 1.12, "Parsing Canonical Form for Schemas" and "Schema Fingerprints".
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Final

PRIMITIVE_TYPES: Final = frozenset(
    ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
)
NAMED_TYPES: Final = frozenset(("record", "error", "enum", "fixed"))

_CRC_EMPTY: Final = 0xC15D213AA4D7A795
# The order of the attributes in the canonical form ([ORDER] in the specification).
_KEPT_ATTRIBUTES: Final = ("name", "type", "fields", "symbols", "items", "values", "size")


def full_name(name: str, namespace: str | None, enclosing: str | None) -> str:
    """The full name of a named type: dots of its own win, then `namespace`, then `enclosing`."""
    if "." in name:
        return name
    space = enclosing if namespace is None else namespace
    return f"{space}.{name}" if space else name


def canonical_form(definition: object) -> str:
    """The Parsing Canonical Form of a schema, given as parsed JSON. Raises `ValueError`."""
    return _canonical(definition, None)


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


def _crc_table() -> tuple[int, ...]:
    rows = []
    for row in range(256):
        crc = row
        for _ in range(8):
            crc = (crc >> 1) ^ (_CRC_EMPTY & -(crc & 1))
        rows.append(crc)
    return tuple(rows)


_CRC_TABLE: Final = _crc_table()


def _canonical(definition: object, enclosing: str | None) -> str:
    if isinstance(definition, str):
        name = definition
        if name not in PRIMITIVE_TYPES:
            name = full_name(name, None, enclosing)
        return _text(name)
    if isinstance(definition, list):
        return "[" + ",".join(_canonical(branch, enclosing) for branch in definition) + "]"
    if not isinstance(definition, Mapping):
        raise ValueError(f"not an Avro schema: {definition!r}")
    kind = definition.get("type")
    if kind in PRIMITIVE_TYPES:
        return _text(str(kind))
    if not isinstance(kind, str):
        return _canonical(kind, enclosing)
    return _canonical_complex(definition, kind, enclosing)


def _canonical_complex(definition: Mapping[str, object], kind: str, enclosing: str | None) -> str:
    name = None
    if kind in NAMED_TYPES:
        namespace = definition.get("namespace")
        name = full_name(
            str(definition["name"]), None if namespace is None else str(namespace), enclosing
        )
        enclosing = name.rpartition(".")[0] or None
    elif kind not in ("array", "map"):
        return _canonical(kind, enclosing)
    parts = []
    for attribute in _KEPT_ATTRIBUTES:
        if attribute == "name" and name is not None:
            text = _text(name)
        elif attribute not in definition:
            continue
        elif attribute == "type":
            text = _text(kind)
        elif attribute == "fields":
            text = _canonical_fields(definition["fields"], enclosing)
        elif attribute in ("items", "values"):
            text = _canonical(definition[attribute], enclosing)
        elif attribute == "size":
            text = str(int(str(definition["size"])))
        else:
            text = json.dumps(definition[attribute], ensure_ascii=False, separators=(",", ":"))
        parts.append(f'"{attribute}":{text}')
    return "{" + ",".join(parts) + "}"


def _canonical_fields(fields: object, enclosing: str | None) -> str:
    if not isinstance(fields, list):
        raise ValueError(f"a record's fields must be a list: {fields!r}")
    texts = [
        f'{{"name":{_text(str(field["name"]))},"type":{_canonical(field["type"], enclosing)}}}'
        for field in fields
    ]
    return "[" + ",".join(texts) + "]"


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
