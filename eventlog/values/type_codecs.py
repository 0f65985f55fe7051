"""Codecs of registered types: how a live value becomes a canonical one, and back.

A codec is code that this process holds; what is stored is its registered name, never a class path.
Here are those of the package itself. A value with attributes that its codec would lose is refused.
"""

import random
import sys
from array import array
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from typing import Any, Final, NamedTuple

from eventlog.values.extension_values import Refusal


class TypeCodec(NamedTuple):
    """How values of exactly the class `cls` are stored and brought back.

    `to_value(live)` gives a canonical value and raises `Refusal`; `from_value(value)` gives the
    live one and raises ValueError or TypeError for a value that `to_value` never gives. `mutable`:
    the live value can change, so two references to it are one thing; `is_rng`: it is a random
    generator, whose sharing decides what is drawn.
    """

    cls: type
    name: str
    version: int
    to_value: Callable[[Any], object]
    from_value: Callable[[Any], object]
    mutable: bool = True
    is_rng: bool = False


def no_attributes(value: object) -> None:
    """Raises `Refusal` where the instance has attributes of its own: they would be lost."""
    extra = getattr(value, "__dict__", None)
    if extra:
        raise Refusal(
            f"has attributes beyond its items ({', '.join(sorted(map(str, extra)))})",
            "register a type of your own with steplog.register_type",
        )


def _from_ordered(value: Any) -> object:
    return OrderedDict(_dict_of(value))


def _to_ordered(value: Any) -> object:
    no_attributes(value)
    return dict(value)


# The only factories that a stored defaultdict can name.
_FACTORIES: Final[dict[str, Callable[[], object]]] = {
    "bool": bool, "bytes": bytes, "counter": Counter, "defaultdict": defaultdict, "deque": deque,
    "dict": dict, "float": float, "frozenset": frozenset, "int": int, "list": list,
    "ordered_dict": OrderedDict, "set": set, "str": str, "tuple": tuple,
}  # fmt: skip


def _to_default(value: Any) -> object:
    factory = value.default_factory
    if factory is None:
        return [None, dict(value)]
    for name, known in _FACTORIES.items():
        if factory is known:
            return [name, dict(value)]
    raise Refusal(
        f"has the default factory {getattr(factory, '__qualname__', type(factory).__name__)}",
        f"use one of {', '.join(_FACTORIES)}, or register a type of your own",
    )


def _from_default(value: Any) -> object:
    name, items = value
    return defaultdict(None if name is None else _FACTORIES[name], _dict_of(items))


def _from_deque(value: Any) -> object:
    length_max, items = value
    if length_max is not None and len(items) > length_max:
        raise ValueError("more items than the deque holds")
    return deque(_list_of(items), length_max)


def _to_counter(value: Any) -> object:
    no_attributes(value)
    return dict(value)


def _from_counter(value: Any) -> object:
    return Counter(_dict_of(value))


def _to_random(value: Any) -> object:
    version, internal, gauss_next = value.getstate()
    extra = vars(value).keys() - {"gauss_next"}
    if version != 3 or extra:
        raise Refusal("is a random generator with a state of its own", "use random.Random")
    words = array("I", internal[:-1])
    return [_little_endian(words).tobytes(), internal[-1], gauss_next]


def _from_random(value: Any) -> object:
    data, position, gauss_next = value
    words = array("I")
    words.frombytes(data)
    if len(words) != 624 or not 0 <= position <= 624 or type(position) is not int:
        raise ValueError("not a state of random.Random")
    if gauss_next is not None and type(gauss_next) is not float:
        raise ValueError("not a state of random.Random")
    generator = random.Random()
    generator.setstate((3, (*_little_endian(words), position), gauss_next))
    return generator


def _little_endian(words: "array[int]") -> "array[int]":
    if words.itemsize != 4:
        raise Refusal("needs C ints of 4 bytes", "run on a common platform")
    if sys.byteorder == "big":
        words.byteswap()
    return words


def _dict_of(value: Any) -> dict[Any, Any]:
    if type(value) is not dict:
        raise TypeError("not a dict")
    return value


def _list_of(value: Any) -> list[Any]:
    if type(value) is not list:
        raise TypeError("not a list")
    return value


def _path_codec(cls: type[PurePath], name: str) -> TypeCodec:
    def from_value(value: Any) -> object:
        if type(value) is not str:
            raise TypeError("not a str")
        return cls(value)

    return TypeCodec(cls, name, 1, str, from_value, mutable=False)


RANDOM_NAME: Final = "steplog.random"

# Names are stored: they are never renamed or used again.
PACKAGE_CODECS: Final = (
    TypeCodec(OrderedDict, "steplog.ordered_dict", 1, _to_ordered, _from_ordered),
    TypeCodec(defaultdict, "steplog.default_dict", 1, _to_default, _from_default),
    TypeCodec(deque, "steplog.deque", 1, lambda value: [value.maxlen, list(value)], _from_deque),
    TypeCodec(Counter, "steplog.counter", 1, _to_counter, _from_counter),
    TypeCodec(random.Random, RANDOM_NAME, 1, _to_random, _from_random, is_rng=True),
    _path_codec(PurePosixPath, "steplog.pure_posix_path"),
    _path_codec(PureWindowsPath, "steplog.pure_windows_path"),
    # `Path()` is a PosixPath or a WindowsPath; the other platform keeps the stored one closed.
    _path_codec(
        type(Path()),
        "steplog.posix_path" if isinstance(Path(), PurePosixPath) else "steplog.windows_path",
    ),
)
