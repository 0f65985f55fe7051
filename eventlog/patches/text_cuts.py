"""Cuts of a text: which ranges of it to replace to get another, and by what.

For str (in code points) and bytes. Made for what states hold: a file edited at a few places, a log
or a terminal that slides along a window. Pure; used by the state diff.
"""

from itertools import accumulate
from typing import Final

from eventlog.patches.sequence_alignment import Symbols, common_prefix, common_suffix, gaps_between

# A text this long and of several lines is compared by lines, so that far edits are far cuts.
LINED_SYMBOLS_MIN: Final = 256
# A text that slid along a window keeps at least this much; so many places are tried to find it.
OVERLAP_SYMBOLS_MIN: Final = 16
OVERLAP_TRIALS_MAX: Final = 32


def text_cuts(before: Symbols, after: Symbols) -> list[tuple[int, int, Symbols]]:
    """The ranges of `before` to replace, and by what, in order."""
    shorter = min(len(before), len(after))
    if shorter < LINED_SYMBOLS_MIN:
        return _piece_cuts(before, after, 0)
    lines: list[Symbols] = before.splitlines(keepends=True)
    others: list[Symbols] = after.splitlines(keepends=True)
    starts = [0, *accumulate(map(len, lines))]
    other_starts = [0, *accumulate(map(len, others))]
    cuts = []
    for gap in gaps_between(lines, others):
        start, end = starts[gap.before_start], starts[gap.before_end]
        other = after[other_starts[gap.after_start] : other_starts[gap.after_end]]
        cuts += _piece_cuts(before[start:end], other, start)
    return cuts


def _piece_cuts(before: Symbols, after: Symbols, offset: int) -> list[tuple[int, int, Symbols]]:
    """Cuts that make one piece into another: one, or two where the piece slid along a window."""
    shorter = min(len(before), len(after))
    front = common_prefix(before, 0, after, 0, shorter)
    back = common_suffix(before, len(before), after, len(after), shorter - front)
    start, end = offset + front, offset + len(before) - back
    inserted = after[front : len(after) - back]
    slid = _slid(before[front : len(before) - back], inserted)
    if slid:
        return [(start, start + slid, after[:0]), (end, end, inserted[end - start - slid :])]
    return [(start, end, inserted)]


def _slid(before: Symbols, after: Symbols) -> int:
    """How many symbols `before` lost at its front, if the rest of it begins `after`; else 0."""
    probe = after[:OVERLAP_SYMBOLS_MIN]
    if len(probe) < OVERLAP_SYMBOLS_MIN:
        return 0
    at = before.find(probe, 1)
    for _ in range(OVERLAP_TRIALS_MAX):
        if at < 0 or after.startswith(before[at:]):
            return max(at, 0)
        at = before.find(probe, at + 1)
    return 0
