"""`Cut`: for each partition of a log the end offset, exclusive.

A cut says how far something has come: everything *below* the end of each partition is covered, the
record at the end is not. A partition that is not named has the end 0: nothing of it is covered, so
a cut that names it with 0 is the same cut. Cuts of several partitions are ordered only in part: two
may each cover what the other does not (`CutOrder.APART`).

Used by consumers (their committed position), by checkpoint sets (what the weights came from) and by
`EventLog.tail_events`. Pure.
"""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class CutOrder(StrEnum):
    """How one cut lies to another: `before` covers less, `after` more, `apart` neither."""

    EQUAL = "equal"
    BEFORE = "before"
    AFTER = "after"
    APART = "apart"


class Cut:
    """An immutable map from partition to end offset, exclusive. Hashable; equal by value.

    >>> Cut({0: 5}).merge(Cut({0: 3, 1: 2}))
    Cut({0: 5, 1: 2})
    >>> Cut({0: 5}).holds(0, 4), Cut({0: 5}).holds(0, 5)
    (True, False)
    """

    __slots__ = ("_ends",)

    _ends: Mapping[int, int]

    def __init__(self, ends: Mapping[int, int] | None = None) -> None:
        """Partition -> end offset. Raises `ValueError` for a negative or non-int number."""
        kept = {}
        for partition, end in sorted((ends or {}).items()):
            _require_count("partition", partition)
            _require_count("end offset", end)
            if end:
                kept[partition] = end
        object.__setattr__(self, "_ends", MappingProxyType(kept))

    @classmethod
    def empty(cls) -> "Cut":
        """The cut that covers nothing."""
        return _EMPTY

    @classmethod
    def from_names(cls, ends: Mapping[str, int]) -> "Cut":
        """From the form with partitions as decimal strings (Avro and JSON maps).

        Raises `ValueError` where a name is not the decimal form of a partition.
        """
        numbers = {}
        for name, end in ends.items():
            if not (name.isascii() and name.isdigit()) or str(int(name)) != name:
                raise ValueError(f"not a partition: {name!r}")
            numbers[int(name)] = end
        return cls(numbers)

    def end(self, partition: int) -> int:
        """The end offset of `partition`, exclusive: the first offset that is not covered."""
        return self._ends.get(partition, 0)

    def holds(self, partition: int, offset: int) -> bool:
        """Whether the record at `offset` of `partition` is covered."""
        return 0 <= offset < self.end(partition)

    def covers(self, other: "Cut") -> bool:
        """Whether every record that `other` covers is covered here too. A cut covers itself."""
        return all(self.end(partition) >= end for partition, end in other._ends.items())

    def compare(self, other: "Cut") -> CutOrder:
        """How this cut lies to `other`."""
        if self == other:
            return CutOrder.EQUAL
        if self.covers(other):
            return CutOrder.AFTER
        return CutOrder.BEFORE if other.covers(self) else CutOrder.APART

    def merge(self, other: "Cut") -> "Cut":
        """The smallest cut that covers both: the larger end of each partition."""
        return Cut(
            {
                partition: max(self.end(partition), other.end(partition))
                for partition in self._ends.keys() | other._ends.keys()
            }
        )

    def including(self, partition: int, offset: int) -> "Cut":
        """The smallest cut that covers this one and the record at `offset`: its end is past it."""
        return self.merge(Cut({partition: offset + 1}))

    def partitions(self) -> Iterator[int]:
        """The partitions of which something is covered, ascending."""
        return iter(self._ends)

    def as_dict(self) -> dict[int, int]:
        """Partition -> end offset, ascending by partition; ends of 0 are left out."""
        return dict(self._ends)

    def as_names(self) -> dict[str, int]:
        """As `as_dict`, with partitions as decimal strings, for Avro and JSON maps."""
        return {str(partition): end for partition, end in self._ends.items()}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Cut):
            return NotImplemented
        return self._ends == other._ends

    def __hash__(self) -> int:
        return hash(tuple(self._ends.items()))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a cut is immutable: {name}")

    def __reduce__(self) -> tuple[object, ...]:
        return (Cut, (dict(self._ends),))

    def __repr__(self) -> str:
        return f"Cut({dict(self._ends)})"


def _require_count(what: str, value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{what} must be an int from 0: {value!r}")


_EMPTY: Final = Cut()
