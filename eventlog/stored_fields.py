"""Flat lists of plain values as they come back from storage, checked before use. Pure."""

from collections.abc import Sequence
from typing import Any, TypeAlias

FieldTypes: TypeAlias = type | tuple[type, ...]


def require_types(value: object, types: Sequence[FieldTypes]) -> Sequence[Any]:
    """`value`, if it is a list of exactly these types, in this order (a bool is no int).

    Raises `TypeError` saying what does not fit.
    """
    if not isinstance(value, list | tuple) or len(value) != len(types):
        raise TypeError(f"{len(types)} values expected, got {value!r:.80}")
    for item, kind in zip(value, types, strict=True):
        if not isinstance(item, kind) or (isinstance(item, bool) and kind is not bool):
            raise TypeError(f"{item!r:.80} has no place there")
    return value
