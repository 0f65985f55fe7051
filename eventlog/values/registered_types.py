"""The registry of types that canonical values may hold beyond the built-in ones (ext 10).

`register_type` is the only way in: a class is registered by name in each process that encodes or
restores it, and a stored name never imports anything. Values of a class that is not registered are
refused when encoded, and stay `Registered`, closed, when read.

    class Colour(enum.Enum):
        RED = "red"

    steplog.register_type(Colour, "desk.colour")   # Enum, namedtuple, dataclass, pydantic model
    steplog.register_type(Grid, "desk.grid", to_value=Grid.rows, from_value=Grid)   # any other
"""

import dataclasses
import enum
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final, TypeVar
from uuid import UUID

from eventlog.errors import ConfigError
from eventlog.values.array_values import array_value_of
from eventlog.values.class_codecs import class_codec
from eventlog.values.extension_values import Refusal, scalar_is_nan
from eventlog.values.opaque_values import ArrayValue, Registered
from eventlog.values.type_codecs import PACKAGE_CODECS, TypeCodec

_PACKAGE_PREFIX: Final = "steplog."
# Types with a row of their own in the table; a class before the class it derives from.
_NATIVE: Final = (
    *(bool, int, float, str, bytes, list, dict, tuple, set, frozenset, type(None)),
    *(datetime, date, time, timedelta, Decimal, UUID, complex, ArrayValue, Registered),
)
_by_type: dict[type, TypeCodec] = {codec.cls: codec for codec in PACKAGE_CODECS}
_by_name: dict[str, TypeCodec] = {codec.name: codec for codec in PACKAGE_CODECS}

_T = TypeVar("_T")


def register_type(
    cls: type[_T],
    name: str,
    *,
    version: int = 1,
    to_value: Callable[[_T], object] | None = None,
    from_value: Callable[[Any], _T] | None = None,
) -> type[_T]:
    """Let values of exactly `cls` be stored under `name`, and be brought back; returns `cls`.

    Enums, namedtuples, dataclasses and pydantic models need no functions: their members or fields
    are stored by name, and restored without running `__init__`. For any other class, and to read
    what an older version of a class stored, give both: `to_value(live)` returns a value that can be
    encoded, `from_value(value)` the live one, raising ValueError for what it cannot read.

    `name` is stored and is never used for another class; names that begin with "steplog." are the
    package's. Raise `version` when the stored value changes: values of another version stay closed.
    Registering the same class again replaces its codec, so a module may be reloaded. Raises
    `ConfigError`.
    """
    _check_name(cls, name, version)
    codec: TypeCodec | None
    if to_value is not None and from_value is not None:
        codec = TypeCodec(cls, name, version, to_value, from_value)
    elif to_value is not None or from_value is not None:
        raise ConfigError(
            f"register_type({cls.__qualname__}) has only one of to_value and from_value",
            hint="give both, or neither for an Enum, namedtuple, dataclass or pydantic model",
        )
    else:
        codec = class_codec(cls, name, version)
    if codec is None:
        raise ConfigError(
            f"{cls.__qualname__} is no Enum, namedtuple, dataclass or pydantic model",
            hint="give register_type a to_value and a from_value",
        )
    before = _by_type.get(cls)
    if before is not None:
        _by_name.pop(before.name, None)
    _by_type[cls] = _by_name[name] = codec
    return cls


def _check_name(cls: type, name: str, version: int) -> None:
    if not isinstance(cls, type) or cls in _NATIVE:
        raise ConfigError(
            f"{cls!r} cannot be registered", hint="register a class of your own, not a built-in"
        )
    if type(name) is not str or not name.isascii() or not name.isprintable() or not name:
        raise ConfigError(
            f"{name!r} is not a name for {cls.__qualname__}",
            hint="use printable ASCII that stays the same for ever, as 'desk.colour'",
        )
    if name.startswith(_PACKAGE_PREFIX) or cls in _PACKAGE_TYPES:
        raise ConfigError(
            f"{cls.__qualname__} or the name {name!r} belongs to steplog",
            hint="use a name of your own, as 'desk.colour', and a class of your own",
        )
    if type(version) is not int or not 0 <= version < 1 << 32:
        raise ConfigError(f"{version!r} is not a version", hint="use an int from 0 on")
    holder = _by_name.get(name)
    if holder is not None and not _is_same_class(holder.cls, cls):
        raise ConfigError(
            f"the name {name!r} is registered for {holder.cls.__qualname__}",
            hint="each class needs a name of its own",
        )


_PACKAGE_TYPES: Final = frozenset(_by_type)


def _is_same_class(one: type, other: type) -> bool:
    """The same class, or its definition run again (a module reloaded, a notebook cell rerun)."""
    return (one.__module__, one.__qualname__) == (other.__module__, other.__qualname__)


def is_native(cls: type) -> bool:
    """Whether the class has a row of its own in the table, and needs no codec."""
    return cls in _NATIVE


def codec_of(cls: type) -> TypeCodec | None:
    """The codec of exactly this class, if it is registered."""
    return _by_type.get(cls)


def close_value(value: object) -> Registered | ArrayValue:
    """The closed form of an array or of a value of a registered type.

    Only the outermost type is closed: the `value` inside may hold live ones. Raises `Refusal`.
    """
    kind = type(value)
    codec = _by_type.get(kind)
    if codec is not None:
        return Registered(codec.name, codec.version, codec.to_value(value))
    array = array_value_of(value)
    if array is not None:
        return array
    raise Refusal("has no canonical form", _hint_for(kind))


def open_value(closed: Registered, value: object) -> object:
    """The live value of `closed`, whose inner value is given as `value`, already live.

    Raises LookupError where no codec has this name and version, ValueError where the stored value
    is not one that the codec gives.
    """
    codec = _by_name.get(closed.name)
    if codec is None or codec.version != closed.version:
        raise LookupError(closed.name)
    try:
        return codec.from_value(value)
    except (TypeError, LookupError, ArithmeticError, AttributeError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error


def registered_version(name: str) -> int | None:
    """The version that is registered under `name` in this process."""
    codec = _by_name.get(name)
    return None if codec is None else codec.version


def _hint_for(kind: type) -> str:
    if kind is bytearray or kind is memoryview:
        return "store bytes(value)"
    register = f"steplog.register_type({kind.__qualname__}, 'my.name')"
    if issubclass(kind, enum.Enum):
        return f"register the Enum once: {register}"
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return f"register the namedtuple once: {register}"
    if dataclasses.is_dataclass(kind) or hasattr(kind, "__pydantic_fields__"):
        return f"register the class once: {register}"
    for native in _NATIVE:
        if issubclass(kind, native):
            return f"convert it to a plain {native.__name__}, or register its class"
    if issubclass(kind, Mapping):
        return "convert it to a plain dict, or register its class"
    if hasattr(kind, "__next__") or issubclass(kind, Callable):  # type: ignore[arg-type]
        return "code and iterators cannot be stored: keep it out of the state"
    return f"keep it out of the state, or register its class: {register[:-1]}, to_value=..., " + (
        "from_value=...)"
    )


def holds_nan(value: object) -> bool:
    """Whether a key or set element is, or has in it, a NaN: it could never be found again."""
    kind = type(value)
    if kind in _NEVER_NAN:
        return False
    if kind is float or kind is complex:
        return bool(value != value)
    if kind is Decimal:
        return value.is_nan()  # type: ignore[attr-defined, no-any-return]
    if kind is tuple or kind is list or kind is frozenset or kind is set:
        return any(map(holds_nan, value))  # type: ignore[call-overload]
    if kind is dict:
        return any(map(holds_nan, value.values()))  # type: ignore[attr-defined]
    closed = value if kind is Registered or kind is ArrayValue else close_value(value)
    if isinstance(closed, ArrayValue):
        return scalar_is_nan(closed)
    return holds_nan(closed.value)  # type: ignore[attr-defined]


_NEVER_NAN: Final = frozenset(
    (str, int, bytes, bool, type(None), datetime, date, time, timedelta, UUID)
)
