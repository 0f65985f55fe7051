"""Closed values made live again, by the codecs that this process registered.

What is handed out shares no container with what was given: a restored state is the caller's own.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

from eventlog.errors import CodecMissingError
from eventlog.values.array_values import open_array_value
from eventlog.values.opaque_values import ArrayValue, Registered
from eventlog.values.registered_types import open_value, registered_version
from eventlog.values.value_path import path_step

_ATOMS: Final = frozenset((str, int, float, bool, type(None), bytes))
# Makes a closed value live, its parts being live already; or gives it back as it is.
_Open = Callable[[Registered | ArrayValue], object]


class _Missing(Exception):  # noqa: N818  (becomes CodecMissingError once the path is known)
    def __init__(self, name: str, why: str, hint: str) -> None:
        super().__init__(why)
        self.name = name
        self.why = why
        self.hint = hint
        self.steps: list[str] = []


def restore(value: object) -> object:
    """The live value of an opaque one, for handing to an environment.

    Raises `CodecMissingError` naming the path of the first value whose type is not registered here
    in the stored version, whose library is not installed, or which its codec cannot read.
    """
    try:
        return _restored(value, _open)
    except _Missing as missing:
        path = "$" + "".join(reversed(missing.steps))
        raise CodecMissingError(
            f"{missing.name} at {path} {missing.why}",
            hint=missing.hint,
            name=missing.name,
            path=path,
        ) from missing


def open_known(value: object) -> object:
    """As `restore`, but what this process cannot make live stays closed."""
    try:
        return _restored(value, _open_or_keep)
    except _Missing:
        return value  # keys that are none, or equal, once they are live


def may_hold_closed(data: bytes) -> bool:
    """Whether canonical bytes may hold ext 9 or ext 10; False is certain."""
    for code in (b"\x09", b"\x0a"):
        at = data.find(code)
        while at >= 0:
            # The code stands after the ext's head and, but for heads of a fixed size, its length.
            heads = data[max(at - 5, 0) : at]
            if heads and (
                0xD4 <= heads[-1] <= 0xD8
                or heads[-2:-1] == b"\xc7"
                or heads[-3:-2] == b"\xc8"
                or (len(heads) == 5 and heads[0] == 0xC9)
            ):
                return True
            at = data.find(code, at + 1)
    return False


def _open(closed: Registered | ArrayValue) -> object:
    if isinstance(closed, ArrayValue):
        return _open_array(closed)
    version = registered_version(closed.name)
    if version != closed.version:
        raise _Missing(
            closed.name,
            f"is stored in version {closed.version}, "
            + ("which is not registered" if version is None else f"registered is {version}"),
            "register its class before: steplog.register_type(cls, "
            f"{closed.name!r}, version={closed.version})",
        )
    try:
        live = _restored(closed.value, _open)
    except _Missing as missing:
        missing.steps.append(f"<{closed.name}>")
        raise
    try:
        return open_value(closed, live)
    except ValueError as error:
        raise _Missing(
            closed.name,
            f"cannot be built from what is stored: {error}",
            "register the class as it was when this was recorded, or a codec that reads it",
        ) from error


def _open_array(closed: ArrayValue) -> object:
    library = "torch" if closed.family == "tensor" else "numpy"
    try:
        return open_array_value(closed)
    except ImportError as error:
        raise _Missing(
            library, f"{closed.family} needs {library}", f"install it: `pip install {library}`"
        ) from error
    except (ValueError, TypeError, OverflowError) as error:
        raise _Missing(
            library,
            f"{closed.family} cannot be built: {error}",
            f"use the version of {library} that it was recorded with",
        ) from error


def _open_or_keep(closed: Registered | ArrayValue) -> object:
    try:
        if isinstance(closed, ArrayValue):
            return _open_array(closed)
        if registered_version(closed.name) != closed.version:
            return closed
        return open_value(closed, _restored(closed.value, _open_or_keep))
    except (_Missing, ValueError):
        return closed


def _restored(value: Any, open_closed: _Open) -> object:
    kind = type(value)
    if kind in _ATOMS:
        return value
    if kind is dict:
        return _restored_dict(value, open_closed)
    if kind is list:
        return _restored_items(value, open_closed)
    if kind is tuple:
        return tuple(_restored_items(value, open_closed))
    if kind is set or kind is frozenset:
        elements = _restored_items(value, open_closed)
        return _keys_apart(kind, elements, elements)
    if kind is Registered or kind is ArrayValue:
        return open_closed(value)
    return value  # a time or a number: it cannot change


def _restored_dict(value: dict[Any, Any], open_closed: _Open) -> object:
    keys, items = [], []
    key: object = None
    try:
        for key, item in value.items():
            keys.append(key if type(key) is str else _restored(key, open_closed))
            items.append(item if type(item) in _ATOMS else _restored(item, open_closed))
    except _Missing as missing:
        missing.steps.append(path_step(key))
        raise
    return _keys_apart(dict, keys, zip(keys, items, strict=True))


def _restored_items(value: Iterable[Any], open_closed: _Open) -> list[object]:
    restored: list[object] = []
    try:
        for item in value:
            restored.append(item if type(item) in _ATOMS else _restored(item, open_closed))
    except _Missing as missing:
        missing.steps.append(f"[{len(restored)}]")
        raise
    return restored


def _keys_apart(kind: Any, keys: list[object], content: Iterable[Any]) -> object:
    """`kind(content)`, if its keys or elements are still as many once they are live."""
    try:
        made = kind(content)
    except TypeError as error:
        raise _Missing(kind.__name__, f"has a key that is none: {error}", _KEY_HINT) from error
    if len(made) != len(keys):
        raise _Missing(kind.__name__, "has two keys that are equal once restored", _KEY_HINT)
    return made


_KEY_HINT: Final = "the type registered for its keys must give values that hash and differ"
