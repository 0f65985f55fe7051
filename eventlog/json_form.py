"""The JSON form of canonical values (docs/formats.md): `--json`, exports and the viewer write it.

It is reversible and strict: each value has one form, each form one value, and the text is JSON as
RFC 8259 has it, which any reader takes. What JSON cannot say is an object of one key that begins
with `$`. Values of registered types and arrays come back closed; see `canonical.restore`.
"""

import base64
import binascii
import json
import math
from collections.abc import Callable, Iterable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from eventlog.canonical import decode, encode
from eventlog.errors import ValueNotEncodableError
from eventlog.values.extension_values import (
    ZoneMissing,
    array_of,
    array_parts,
    is_utf8,
    number_of,
    number_parts,
    registered_of,
    time_of,
    time_parts,
)
from eventlog.values.opaque_values import ArrayValue, Registered
from eventlog.values.value_path import path_step

_INT_MAX: Final = 1 << 53  # beyond it, readers that keep numbers as floats lose digits


def to_json_form(value: object) -> object:
    """The JSON form of a live or opaque value: dicts, lists, str, int, float, bool and None.

    Elements of a set stand in canonical order. Raises `ValueNotEncodableError` naming the path.
    """
    return _form(decode(encode(value), opaque=True))


def dumps(value: object) -> str:
    """The JSON form as one line of JSON text that UTF-8 can encode."""
    form = to_json_form(value)
    return json.dumps(form, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def from_json_form(form: object) -> object:
    """The opaque value of a JSON form.

    Raises `ValueNotEncodableError` naming the path of what `to_json_form` never gives: an unknown
    `$` key, an int beyond 2^53 or an integral float as a number, a form for what has a plainer one.
    """
    value = _value(form, "$")
    encode(value)  # nesting, and keys that are none
    return value


def loads(text: str) -> object:
    """The opaque value of JSON text in the JSON form. Raises `ValueNotEncodableError`."""
    try:
        form = json.loads(text, object_pairs_hook=_object, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise _not_form("$", f"not JSON: {error}") from error
    return from_json_form(form)


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    entries = dict(pairs)
    if len(entries) != len(pairs):
        raise ValueError("an object has a key twice")
    return entries


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


# --- From values.


def _form(value: Any) -> object:
    kind = type(value)
    if value is None or kind is bool:
        return value
    if kind is str:
        return (
            value if is_utf8(value) else {"$str": _base64(value.encode("utf-8", "surrogatepass"))}
        )
    if kind is int:
        return value if -_INT_MAX <= value <= _INT_MAX else {"$int": _digits(value)}
    if kind is float:
        return value if _is_plain_float(value) else {"$float": repr(value)}
    if kind is dict:
        if all(map(_is_plain_key, value)):
            return {key: _form(item) for key, item in value.items()}
        return {"$dict": [[_form(key), _form(item)] for key, item in value.items()]}
    if kind is list:
        return list(map(_form, value))
    tag, content = _TAGGED[kind](value)
    return {tag: content}


def _digits(value: int) -> str:
    # `str` of an int stops at 4300 digits; Decimal is exact and does not.
    return str(Decimal(value))


def _is_plain_float(value: float) -> bool:
    return math.isfinite(value) and not value.is_integer()


def _is_plain_key(key: object) -> bool:
    return type(key) is str and not key.startswith("$") and is_utf8(key)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _elements(value: Iterable[object]) -> list[object]:
    return list(map(_form, sorted(value, key=encode)))


def _time_content(value: Any) -> tuple[str, object]:
    tag, *parts = time_parts(value)
    return f"${tag}", parts[0] if tag == "date" else parts


def _number_content(value: Any) -> tuple[str, object]:
    tag, *parts = number_parts(value)
    if tag == "complex":
        return "$complex", list(map(_form, parts))
    return f"${tag}", str(value) if tag == "uuid" else parts[0]


def _array_content(value: ArrayValue) -> tuple[str, object]:
    family, dtype, shape, _ = array_parts(value)
    return "$array", [family, dtype, shape, _base64(value.data)]


_TAGGED: Final[dict[type, Callable[[Any], tuple[str, object]]]] = {
    bytes: lambda value: ("$bytes", _base64(value)),
    tuple: lambda value: ("$tuple", list(map(_form, value))),
    set: lambda value: ("$set", _elements(value)),
    frozenset: lambda value: ("$frozenset", _elements(value)),
    **dict.fromkeys((datetime, date, time, timedelta), _time_content),
    **dict.fromkeys((Decimal, UUID, complex), _number_content),
    ArrayValue: _array_content,
    Registered: lambda value: ("$type", [value.name, value.version, _form(value.value)]),
}


# --- Back from forms.


def _not_form(path: str, why: str) -> ValueNotEncodableError:
    return ValueNotEncodableError(
        f"not the JSON form of a value at {path}: {why}",
        hint="give what `steplog --json` or `json_form.dumps` writes",
        path=path,
    )


def _value(form: object, path: str) -> object:
    kind = type(form)
    if form is None or kind is bool:
        return form
    if isinstance(form, dict):
        if len(form) == 1 and next(iter(form)).startswith("$"):
            return _tagged_value(form, path)
        if not all(map(_is_plain_key, form)):
            raise _not_form(path, "a key that begins with $, or has a lone surrogate")
        return {key: _value(item, path + path_step(key)) for key, item in form.items()}
    if isinstance(form, list):
        return _values(form, path)
    if isinstance(form, str) and is_utf8(form):
        return form
    if isinstance(form, int) and -_INT_MAX <= form <= _INT_MAX:
        return form
    if isinstance(form, float) and _is_plain_float(form):
        return form
    raise _not_form(path, f"{form!r:.60} is written in another form")


def _values(forms: object, path: str) -> list[object]:
    if type(forms) is not list:
        raise _not_form(path, "not an array")
    return [_value(form, f"{path}[{position}]") for position, form in enumerate(forms)]


def _tagged_value(form: dict[str, object], path: str) -> object:
    ((tag, content),) = form.items()
    opener = _OPENERS.get(tag)
    if opener is None:
        raise _not_form(path, f"the key {tag!r} is unknown")
    try:
        value = opener(content, f"{path}[{json.dumps(tag)}]")
        plain = _form(value)
    except (ValueError, TypeError, ArithmeticError) as error:
        raise _not_form(path, f"{tag}: {error}") from error
    except ZoneMissing as error:
        raise _not_form(path, f"{tag}: this machine has no time zone {error.key!r}") from error
    # Equal to what is written for this value, or it is a second form of it.
    if json.dumps(plain) != json.dumps(form):
        raise _not_form(path, f"{tag} does not hold what is written for this value")
    return value


def _bytes_of(content: Any, _path: str) -> bytes:
    try:
        return base64.b64decode(content, validate=True)
    except binascii.Error as error:
        raise ValueError(f"not base64: {error}") from error


def _text_of(content: object) -> str:
    if type(content) is not str:
        raise TypeError("not a string")
    return content


def _int_of(content: object) -> int:
    text = _text_of(content)
    if not text.removeprefix("-").isdecimal():  # "1e999999999" would take gigabytes
        raise ValueError("not digits")
    return int(Decimal(text))


def _set_of(kind: Callable[[list[object]], Any]) -> Callable[[Any, str], object]:
    def opener(content: Any, path: str) -> object:
        items = _values(content, path)
        elements = kind(items)
        if len(elements) != len(items):
            raise ValueError("an element comes twice")
        return elements

    return opener


def _dict_of(content: Any, path: str) -> object:
    entries: dict[object, object] = {}
    for position, pair in enumerate(content):
        key, item = _values(pair, f"{path}[{position}]")
        entries[key] = item
    if len(entries) != len(content):
        raise ValueError("a key comes twice")
    return entries


def _array_value_of(content: Any, path: str) -> object:
    family, dtype, shape, data = content
    return array_of([family, dtype, shape, _bytes_of(data, path)])


def _registered_value_of(content: Any, path: str) -> object:
    name, version, value = content
    return registered_of([name, version, _value(value, f"{path}[2]")])


_OPENERS: Final[dict[str, Callable[[Any, str], object]]] = {
    "$int": lambda content, _path: _int_of(content),
    "$float": lambda content, _path: float(content),
    "$str": lambda content, path: _bytes_of(content, path).decode("utf-8", "surrogatepass"),
    "$bytes": _bytes_of,
    "$tuple": lambda content, path: tuple(_values(content, path)),
    "$set": _set_of(set),
    "$frozenset": _set_of(frozenset),
    "$dict": _dict_of,
    "$datetime": lambda content, _path: time_of(["datetime", *content]),
    "$date": lambda content, _path: time_of(["date", content]),
    "$time": lambda content, _path: time_of(["time", *content]),
    "$timedelta": lambda content, _path: time_of(["timedelta", *content]),
    "$decimal": lambda content, _path: number_of(["decimal", content]),
    "$uuid": lambda content, _path: UUID(_text_of(content)),
    "$complex": lambda content, path: number_of(["complex", *_values(content, path)]),
    "$array": _array_value_of,
    "$type": _registered_value_of,
}
