"""Values of the JSON form as a person reads them. Pure; `--json` keeps the exact form.

Floats are numbers. numpy's scalars are numbers too, and arrays nested lists behind their dtype and
shape, while they are small; larger ones, and larger values of registered types, are told by what
they are and how large. Never needs numpy or a registration. All else stays as the JSON form has it.
"""

import json
import struct
from collections.abc import Callable, Mapping
from hashlib import sha256
from math import prod
from typing import Any, Final

from eventlog.canonical import encode
from eventlog.json_form import from_json_form
from eventlog.values.opaque_values import ArrayValue, Registered

ARRAY_ITEMS_MAX: Final = 64
"""An array of more elements is told by dtype, shape and digest."""

REGISTERED_CHARS_MAX: Final = 200
"""A value of a registered type whose text is longer is told by its type and size."""

DIGEST_CHARS: Final = 16

_NAMES: Final = {"steplog.random": "random.Random"}

# A dtype's kind and size: how `struct` reads one element. Others are told by their digest.
_STRUCT_CODES: Final = {
    "bool": "?",
    **{f"int{8 * size}": code for size, code in ((1, "b"), (2, "h"), (4, "i"), (8, "q"))},
    **{f"uint{8 * size}": code for size, code in ((1, "B"), (2, "H"), (4, "I"), (8, "Q"))},
    **{f"float{8 * size}": code for size, code in ((2, "e"), (4, "f"), (8, "d"))},
}
_KINDS: Final = {"b": "bool", "i": "int", "u": "uint", "f": "float", "c": "complex"}

_Write = Callable[[str], object]


def value_text(form: object, *, indented: bool = False) -> str:
    """The text of a value in the JSON form, on one line or indented by two."""
    pieces: list[str] = []
    try:
        _write(form, pieces.append, "\n" if indented else "")
    except RecursionError:  # Nested too deep for Python's stack: as the encoder in C has it.
        return json.dumps(form, ensure_ascii=False, indent=2 if indented else None)
    return "".join(pieces)


def bytes_text(count: int) -> str:
    """A number of bytes with the unit that suits it."""
    for unit, size in (("MB", 1_000_000), ("KB", 1_000)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"


def _write(form: object, write: _Write, line: str) -> None:
    """Write a form; `line` is the line end with the present indentation, empty for one line."""
    if isinstance(form, dict):
        if len(form) == 1:
            ((key, content),) = form.items()
            tell = _TOLD.get(key)
            if tell is not None:
                write(tell(content))
                return
        if not form:
            write("{}")
            return
        inner, between = (line + "  " if line else ""), ("," if line else ", ")
        write("{")
        for number, (key, item) in enumerate(form.items()):
            write(f"{between if number else ''}{inner}{_json(key)}: ")
            _write(item, write, inner)
        write(line + "}")
    elif isinstance(form, list):
        if not form:
            write("[]")
            return
        inner, between = (line + "  " if line else ""), ("," if line else ", ")
        write("[")
        for number, item in enumerate(form):
            write(f"{between if number else ''}{inner}")
            _write(item, write, inner)
        write(line + "]")
    else:
        write(_json(form))


def _json(form: object) -> str:
    return json.dumps(form, ensure_ascii=False)


def _float_text(content: object) -> str:
    return str(content)


def _array_text(content: Any) -> str:
    value = from_json_form({"$array": content})
    assert isinstance(value, ArrayValue)
    dtype = _dtype_name(value)
    items = _items(value, dtype)
    if items is not None and value.family == "scalar":
        return items[0]
    told = f"{dtype} {value.family}" + (f" {list(value.shape)}" if value.shape else "")
    if items is None:
        digest = sha256(value.data).hexdigest()[:DIGEST_CHARS]
        return f"<{told}, {bytes_text(len(value.data))}, sha256 {digest}>"
    return f"<{told}: {_nested(items, value.shape)}>"


def _dtype_name(value: ArrayValue) -> str:
    """numpy's spelling of a dtype as its name (`<f8`: float64); any other without its order."""
    dtype = value.dtype
    kind = _KINDS.get(dtype[1:2]) if value.family != "tensor" and dtype[2:].isdigit() else None
    if kind is None:
        return dtype.lstrip("<|")
    return kind if kind == "bool" else f"{kind}{8 * int(dtype[2:])}"


def _items(value: ArrayValue, dtype: str) -> list[str] | None:
    """The elements' texts in C order; None for too many, or of a dtype that is not spelled out."""
    count = prod(value.shape)
    code = _STRUCT_CODES.get(dtype)
    if count > ARRAY_ITEMS_MAX:
        return None
    if value.dtype.startswith("<U"):
        size = len(value.data) // count if count else 0
        cells = [value.data[at * size : (at + 1) * size] for at in range(count)]
        return [_json(cell.decode("utf-32-le", "surrogatepass").rstrip("\0")) for cell in cells]
    if code is None:
        return None
    return [_number_text(item) for item in struct.unpack(f"<{count}{code}", value.data)]


def _number_text(item: object) -> str:
    if isinstance(item, bool):
        return "true" if item else "false"
    return repr(item)


def _nested(items: list[str], shape: tuple[int, ...]) -> str:
    if not shape:
        return items[0]
    stride = len(items) // shape[0] if shape[0] else 0
    parts = [items[at * stride : (at + 1) * stride] for at in range(shape[0])]
    return "[" + ", ".join(_nested(part, shape[1:]) for part in parts) + "]"


def _registered_text(content: Any) -> str:
    name, version, inner = content
    shown = _NAMES.get(name, name.removeprefix("steplog."))
    told = value_text(inner)
    if name not in _NAMES and len(told) <= REGISTERED_CHARS_MAX:
        return f"<{shown} {told}>"
    size = len(encode(Registered(name, version, from_json_form(inner))))
    return f"<{shown}, {bytes_text(size)}>"


_TOLD: Final[Mapping[str, Callable[[Any], str]]] = {
    "$float": _float_text,
    "$array": _array_text,
    "$type": _registered_text,
}
