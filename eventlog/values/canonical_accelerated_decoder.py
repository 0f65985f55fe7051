"""The accelerated decoder, on ormsgpack: accepts what the reference accepts, and nothing else.

ormsgpack accepts bytes after the value, a key twice, numbers and lengths that are not in their
shortest form, and believes the length of an array before it has seen the items. So what it reads is
encoded again and compared; bytes that are not found to be canonical so are judged by the reference.
"""

from collections.abc import Callable
from typing import Any, Final

from eventlog.values import canonical_reference_decoder as reference
from eventlog.values.canonical_accelerated import (
    Unsure,
    is_encoding,
    unpack,
    walk_structure,
)
from eventlog.values.extension_values import (
    EXT_ARRAY,
    EXT_DICT,
    EXT_FROZENSET,
    EXT_INT,
    EXT_NUMBER,
    EXT_REGISTERED,
    EXT_SET,
    EXT_STR,
    EXT_TIME,
    EXT_TUPLE,
    Refusal,
    array_of,
    number_of,
    registered_of,
    time_of,
)


def decode(data: bytes) -> object:
    """The value of canonical bytes, ext 9 and ext 10 closed.

    Raises `EventCorruptError` naming the offset for bytes that are not the one encoding of a value,
    `ZoneMissing` for a time in a zone that this machine does not have.
    """
    try:
        value = _unpacked(data)
        if is_encoding(value, data):
            return value
    except (TypeError, ValueError, RuntimeError, Refusal, Unsure):
        if _interrupts:
            raise _interrupts.pop() from None
    return reference.decode(data)


# ormsgpack drops what a hook raises; an interrupt must not be lost that way.
_interrupts: list[BaseException] = []


def _unpacked(data: bytes) -> Any:
    # ormsgpack makes a list as long as a head says before it has seen an item, and does not free
    # it on an error: where there may be such a head, the structure is walked first.
    if b"\xdc" in data or b"\xdd" in data:
        walk_structure(data)
    return unpack(data, ext_hook=_open_ext)


def _open_ext(code: int, payload: bytes) -> object:
    try:
        return _OPENERS[code](payload)
    except BaseException as error:
        if not isinstance(error, Exception):
            _interrupts.append(error)
        raise


def _items(payload: bytes) -> list[Any]:
    items = _unpacked(payload)
    if type(items) is not list:
        raise Unsure
    return items


def _all_items(made: Any, items: list[Any]) -> Any:
    """`made` from `items`, if none was lost to being equal to another."""
    if len(made) != len(items):
        raise Unsure
    return made


def _dict_of(payload: bytes) -> dict[Any, Any]:
    pairs = _items(payload)
    return _all_items(dict(pairs), pairs)  # type: ignore[no-any-return]


def _set_of(payload: bytes) -> set[Any]:
    items = _items(payload)
    return _all_items(set(items), items)  # type: ignore[no-any-return]


_OPENERS: Final[dict[int, Callable[[bytes], object]]] = {
    EXT_INT: lambda payload: int.from_bytes(payload, "big", signed=True),
    EXT_STR: lambda payload: payload.decode("utf-8", "surrogatepass"),
    EXT_TUPLE: lambda payload: tuple(_items(payload)),
    EXT_SET: _set_of,
    EXT_FROZENSET: lambda payload: frozenset(_set_of(payload)),
    EXT_DICT: _dict_of,
    EXT_TIME: lambda payload: time_of(_unpacked(payload)),
    EXT_NUMBER: lambda payload: number_of(_unpacked(payload)),
    EXT_ARRAY: lambda payload: array_of(_unpacked(payload)),
    EXT_REGISTERED: lambda payload: registered_of(_unpacked(payload)),
}
