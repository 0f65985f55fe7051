"""Values that stay closed: what a reader without a registration, or without numpy, holds.

`Registered` is canonical ext 10, `ArrayValue` ext 9. Both re-encode to the bytes they came from,
and two are equal exactly when their canonical bytes are: a fold over them needs none of the
environment's code and never mixes 1, True and 1.0. Used by the decoders, the patch and the fold.
"""

from collections.abc import Hashable
from typing import final


class _Frozen:
    """Refuses assignment after `__init__`; the fields are set once with `object.__setattr__`."""

    __slots__ = ()

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable; make a new one to change {name}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable; {name} cannot be deleted")


@final
class Registered(_Frozen):
    """A value of a registered type, closed: its registered name, version and canonical value."""

    __slots__ = ("name", "value", "version")
    __match_args__ = ("name", "version", "value")
    name: str
    version: int
    value: object

    def __init__(self, name: str, version: int, value: object) -> None:
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "version", version)
        object.__setattr__(self, "value", value)

    def __eq__(self, other: object) -> bool:
        if type(other) is not Registered:
            return NotImplemented
        return (
            self.name == other.name
            and self.version == other.version
            and identity_key(self.value) == identity_key(other.value)
        )

    def __hash__(self) -> int:
        return hash((Registered, self.name, self.version, identity_key(self.value)))

    def __repr__(self) -> str:
        return f"Registered({self.name!r}, {self.version!r}, {self.value!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return (Registered, (self.name, self.version, self.value))


@final
class ArrayValue(_Frozen):
    """An array, array scalar or tensor, closed.

    `family` is 'array', 'scalar' or 'tensor'; `dtype` numpy's little-endian `dtype.str` or torch's
    short name; `shape` counts elements per axis; `data` is the elements in C order, little-endian.
    """

    __slots__ = ("data", "dtype", "family", "shape")
    __match_args__ = ("family", "dtype", "shape", "data")
    family: str
    dtype: str
    shape: tuple[int, ...]
    data: bytes

    def __init__(self, family: str, dtype: str, shape: tuple[int, ...], data: bytes) -> None:
        object.__setattr__(self, "family", family)
        object.__setattr__(self, "dtype", dtype)
        object.__setattr__(self, "shape", tuple(shape))
        object.__setattr__(self, "data", data)

    def _fields(self) -> tuple[str, str, tuple[int, ...], bytes]:
        return (self.family, self.dtype, self.shape, self.data)

    def __eq__(self, other: object) -> bool:
        if type(other) is not ArrayValue:
            return NotImplemented
        return self._fields() == other._fields()

    def __hash__(self) -> int:
        return hash((ArrayValue, self._fields()))

    def __repr__(self) -> str:
        return (
            f"ArrayValue({self.family!r}, {self.dtype!r}, {self.shape!r}, {len(self.data)} bytes)"
        )

    def __reduce__(self) -> tuple[object, ...]:
        return (ArrayValue, self._fields())


def identity_key(value: object) -> Hashable:
    """A hashable key of an opaque value, equal exactly where canonical bytes are equal."""
    kind = type(value)
    if kind is list or kind is tuple:
        return (kind, tuple(map(identity_key, value)))  # type: ignore[call-overload]
    if kind is dict:
        pairs = value.items()  # type: ignore[attr-defined]
        return (kind, tuple((identity_key(key), identity_key(item)) for key, item in pairs))
    if kind is set or kind is frozenset:
        return (kind, frozenset(map(identity_key, value)))  # type: ignore[call-overload]
    if kind is float or kind is complex:
        return (kind, repr(value))  # repr keeps the sign of zero, and NaN equals NaN
    if kind.__module__ in ("datetime", "decimal"):
        # Equality of instants (and of 1.0 and 1.00) is not equality of bytes.
        return (kind, repr(value), getattr(value, "fold", 0))
    return (kind, value)
