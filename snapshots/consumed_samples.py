"""`ConsumedSamples`: the set of sample ids that are done, kept as ranges.

A count cannot say which samples are done once rollouts finish out of order; a set can. Ids are ints
or strings that the user chooses; ints are kept as ranges, so a set with few holes is small however
many ids it has. Used by `SampleOrder`, and alone by trainers that have an order of their own.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

from eventlog.errors import StateError

FORMAT: Final = 1
_HINT: Final = "give the value that its `state_dict()` returned"


class IntRanges:
    """A set of ints as ascending half-open ranges that do not touch."""

    __slots__ = ("_starts", "_stops")

    def __init__(self, ranges: Iterable[Sequence[int]] = ()) -> None:
        """Of `[start, stop)` pairs, ascending and apart. Raises `StateError` for any other."""
        self._starts: list[int] = []
        self._stops: list[int] = []
        for pair in ranges:
            if (
                type(pair) not in (list, tuple)
                or len(pair) != 2
                or any(type(end) is not int for end in pair)
                or pair[0] >= pair[1]
                or (self._stops and pair[0] <= self._stops[-1])
            ):
                raise StateError(f"{pair!r} is not the next of ascending ranges", hint=_HINT)
            self._starts.append(pair[0])
            self._stops.append(pair[1])

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self._starts, number) - 1
        return at >= 0 and number < self._stops[at]

    def __len__(self) -> int:
        """As `count`; of more than `sys.maxsize` Python raises `OverflowError`, as for a range."""
        return self.count

    def __bool__(self) -> bool:
        return bool(self._starts)

    def __iter__(self) -> Iterator[int]:
        for start, stop in zip(self._starts, self._stops, strict=True):
            yield from range(start, stop)

    @property
    def count(self) -> int:
        """How many ints are in it, however many."""
        return sum(self._stops) - sum(self._starts)

    def add_range(self, start: int, stop: int) -> None:
        """Add the ints of `[start, stop)`; some may be in already."""
        if start >= stop:
            return
        # Those that overlap or touch become one.
        first = bisect_left(self._stops, start)
        last = bisect_right(self._starts, stop)
        if first < last:
            start = min(start, self._starts[first])
            stop = max(stop, self._stops[last - 1])
        self._starts[first:last] = [start]
        self._stops[first:last] = [stop]

    def ranges(self) -> list[list[int]]:
        """The ranges, as `__init__` takes them."""
        return [[start, stop] for start, stop in zip(self._starts, self._stops, strict=True)]

    def holes(self, start: int, stop: int) -> Iterator[range]:
        """What of `[start, stop)` is not in the set, ascending."""
        for at in range(bisect_right(self._stops, start), len(self._stops)):
            begin, end = self._starts[at], self._stops[at]
            if begin >= stop:
                break
            if start < begin:
                yield range(start, begin)
            start = max(start, end)
        if start < stop:
            yield range(start, stop)


class ConsumedSamples:
    """The ids of samples that are done. Ints and strings are apart: 7 is not "7".

    `state_dict()` is a canonical value: ranges of ints, and strings in order. Each rank has marked
    its own; `merge_states` is what all of them have.
    """

    state_is_global = True

    def __init__(self, ids: Iterable[int | str] = ()) -> None:
        """Of these ids. Raises `StateError` for an id that is neither an int nor a str."""
        self._ints = IntRanges()
        self._texts: set[str] = set()
        self.add(ids)

    def add(self, ids: Iterable[int | str]) -> None:
        """Mark ids as done; all of them, or none where it raises. Done twice is done once.

        Raises `StateError` for an id that is neither an int nor a str that UTF-8 can encode.
        """
        given = [ids] if isinstance(ids, str) else list(ids)
        for one in given:
            _require_id(one)
        for one in given:
            if isinstance(one, str):
                self._texts.add(one)
            else:
                self._ints.add_range(one, one + 1)

    def __contains__(self, sample_id: object) -> bool:
        if type(sample_id) is int:
            return sample_id in self._ints
        return type(sample_id) is str and sample_id in self._texts

    def __len__(self) -> int:
        """As `count`; of more than `sys.maxsize` Python raises `OverflowError`, as for a range."""
        return self.count

    def __bool__(self) -> bool:
        return bool(self._ints) or bool(self._texts)

    def __iter__(self) -> Iterator[int | str]:
        yield from self._ints
        yield from sorted(self._texts)

    def __repr__(self) -> str:
        return f"ConsumedSamples({self.count} ids)"

    @property
    def count(self) -> int:
        """How many ids are in it, however many."""
        return self._ints.count + len(self._texts)

    def state_dict(self) -> dict[str, object]:
        """The set as a canonical value of its own."""
        return {"format": FORMAT, "ints": self._ints.ranges(), "texts": sorted(self._texts)}

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Hold exactly what `state` does. Raises `StateError`, and then holds what it held."""
        self._ints, self._texts = _read(state)

    @staticmethod
    def merge_states(states: Sequence[Mapping[str, object]]) -> dict[str, object]:
        """The state that holds what any of `states` holds."""
        merged = ConsumedSamples()
        for state in states:
            ints, texts = _read(state)
            for start, stop in ints.ranges():
                merged._ints.add_range(start, stop)
            merged._texts |= texts
        return merged.state_dict()


def _read(state: Mapping[str, object]) -> tuple[IntRanges, set[str]]:
    if not isinstance(state, Mapping) or set(state) != {"format", "ints", "texts"}:
        raise StateError("this is not the state of ConsumedSamples", hint=_HINT)
    if state["format"] != FORMAT:
        raise StateError(
            f"the consumed samples are of format {state['format']!r}, known is {FORMAT}",
            hint="restore with the steplog that saved it, or a newer one",
        )
    ints, texts = state["ints"], state["texts"]
    if not isinstance(ints, list) or not isinstance(texts, list):
        raise StateError("this is not the state of ConsumedSamples", hint=_HINT)
    for text in texts:
        if type(text) is not str:
            raise StateError(f"{text!r} is among the texts of consumed samples", hint=_HINT)
    if any(after <= before for before, after in pairwise(texts)):
        raise StateError("the texts of consumed samples are not in order", hint=_HINT)
    return IntRanges(ints), set(texts)


def _require_id(one: object) -> None:
    if type(one) is str:
        try:
            one.encode("utf-8")
        except UnicodeEncodeError as error:
            raise StateError(
                f"the sample id {one!r} is no text that UTF-8 can encode", hint="use another id"
            ) from error
    elif type(one) is not int:
        raise StateError(
            f"{one!r} is a {type(one).__qualname__}, not a sample id", hint="use an int or a str"
        )
