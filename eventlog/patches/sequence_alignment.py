"""Runs that two sequences share, in order: what a list or text kept from one state to the next.

Made for what states do: items added or dropped at the ends (a context trimmed to a window), a few
changed between. Not the longest common subsequence: any set of runs gives a right patch, and these
are found in linear time (times a logarithm). Pure.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Final, NamedTuple, TypeVar

Symbols = TypeVar("Symbols", bytes, str)

# Symbols compared at once: slices of this size are copied within the processor's cache.
STEP_MAX: Final = 1 << 15


class Run(NamedTuple):
    """`length` items equal in both, from `before` in the first and `after` in the second."""

    before: int
    after: int
    length: int


class Gap(NamedTuple):
    """What lies between two runs: half-open ranges of both sequences; one of them may be empty."""

    before_start: int
    before_end: int
    after_start: int
    after_end: int


def gaps_between(before: Sequence[Hashable], after: Sequence[Hashable]) -> list[Gap]:
    """The ranges that are not shared, in order."""
    gaps = []
    last = Run(0, 0, 0)
    for run in (*common_runs(before, after), Run(len(before), len(after), 0)):
        gap = Gap(last.before + last.length, run.before, last.after + last.length, run.after)
        if gap.before_start < gap.before_end or gap.after_start < gap.after_end:
            gaps.append(gap)
        last = run
    return gaps


def common_runs(before: Sequence[Hashable], after: Sequence[Hashable]) -> list[Run]:
    """Shared runs, rising in both sequences, none of length 0."""
    shorter = min(len(before), len(after))
    front = back = 0
    while front < shorter and before[front] == after[front]:
        front += 1
    while back < shorter - front and before[-1 - back] == after[-1 - back]:
        back += 1
    before_end, after_end = len(before) - back, len(after) - back
    runs = [Run(0, 0, front), Run(before_end, after_end, back)]
    runs[1:1] = [
        Run(front + run.before, front + run.after, run.length)
        for run in _middle_runs(before[front:before_end], after[front:after_end])
    ]
    return [run for run in runs if run.length]


def _middle_runs(before: Sequence[Hashable], after: Sequence[Hashable]) -> list[Run]:
    if not before or not after:
        return []
    anchored = _anchored_runs(before, after)
    trimmed = _overlap(before, after)
    dropped = _overlap(after, before)
    shared = sum(run.length for run in anchored)
    if trimmed > max(shared, dropped):
        return [Run(len(before) - trimmed, 0, trimmed)]
    if dropped > shared:
        return [Run(0, len(after) - dropped, dropped)]
    return anchored


def _overlap(first: Sequence[Hashable], second: Sequence[Hashable]) -> int:
    """How many items at the end of `first` are the beginning of `second` (Knuth, Morris, Pratt)."""
    if not first or not second:
        return 0
    fallback = [0] * len(second)
    length = 0
    for at in range(1, len(second)):
        while length and second[at] != second[length]:
            length = fallback[length - 1]
        if second[at] == second[length]:
            length += 1
        fallback[at] = length
    length = 0
    for item in first:
        if length == len(second):
            length = fallback[length - 1]
        while length and item != second[length]:
            length = fallback[length - 1]
        if item == second[length]:
            length += 1
    return length


def _anchored_runs(before: Sequence[Hashable], after: Sequence[Hashable]) -> list[Run]:
    """Runs around the items that stand once in each (patience diff)."""
    runs: list[Run] = []
    before_end = after_end = 0
    for at, bt in _anchors(before, after):
        if at < before_end:
            continue
        start = 0
        while (
            at - start > before_end
            and bt - start > after_end
            and before[at - start - 1] == after[bt - start - 1]
        ):
            start += 1
        end = 1
        while (
            at + end < len(before) and bt + end < len(after) and before[at + end] == after[bt + end]
        ):
            end += 1
        runs.append(Run(at - start, bt - start, start + end))
        before_end, after_end = at + end, bt + end
    return runs


def _anchors(before: Sequence[Hashable], after: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Places of items that stand once in each sequence: the longest list that rises in both."""
    in_before, in_after = Counter(before), Counter(after)
    places = {item: at for at, item in enumerate(after) if in_after[item] == 1}
    pairs = [
        (at, places[item])
        for at, item in enumerate(before)
        if item in places and in_before[item] == 1
    ]
    lasts: list[int] = []  # the smallest last place of a rising list, by its length
    chosen: list[int] = []  # which pair that is
    parents: list[int] = []
    for number, (_, place) in enumerate(pairs):
        length = bisect_left(lasts, place)
        parents.append(chosen[length - 1] if length else -1)
        lasts[length : length + 1] = [place]
        chosen[length : length + 1] = [number]
    rising = []
    number = chosen[-1] if chosen else -1
    while number >= 0:
        rising.append(pairs[number])
        number = parents[number]
    return rising[::-1]


def common_prefix(a: Symbols, a_start: int, b: Symbols, b_start: int, limit: int) -> int:
    """How many symbols, at most `limit`, `a` from `a_start` and `b` from `b_start` share.

    Neither may end before `limit` symbols. Compared in C, by slices.
    """
    same, step = 0, 64
    while same < limit:
        step = min(step, limit - same)
        at, bt = a_start + same, b_start + same
        if a[at : at + step] != b[bt : bt + step]:
            break
        same += step
        step = min(step * 4, STEP_MAX)
    else:
        return limit
    differ = same + step
    while differ - same > 1:
        middle = (same + differ) // 2
        if a[a_start + same : a_start + middle] == b[b_start + same : b_start + middle]:
            same = middle
        else:
            differ = middle
    return same


def common_suffix(a: Symbols, a_end: int, b: Symbols, b_end: int, limit: int) -> int:
    """How many symbols, at most `limit`, before `a_end` in `a` and `b_end` in `b` are the same."""
    same, step = 0, 64
    while same < limit:
        step = min(step, limit - same)
        at, bt = a_end - same, b_end - same
        if a[at - step : at] != b[bt - step : bt]:
            break
        same += step
        step = min(step * 4, STEP_MAX)
    else:
        return limit
    differ = same + step
    while differ - same > 1:
        middle = (same + differ) // 2
        if a[a_end - middle : a_end - same] == b[b_end - middle : b_end - same]:
            same = middle
        else:
            differ = middle
    return same
