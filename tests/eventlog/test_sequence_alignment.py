"""Runs and gaps always rebuild the second sequence; windows, trims and edits are found."""

import random

from eventlog.patches.sequence_alignment import (
    STEP_MAX,
    common_prefix,
    common_runs,
    common_suffix,
    gaps_between,
)
from tests.support.scale import scaled


def rebuilt(before: list[int], after: list[int]) -> list[int]:
    """`after`, put together from `before` and the gaps; checks that gaps are real and in order."""
    result: list[int] = []
    at = 0
    for gap in gaps_between(before, after):
        assert gap.before_start >= at
        result += before[at : gap.before_start]
        assert len(result) == gap.after_start
        result += after[gap.after_start : gap.after_end]
        at = gap.before_end
        assert gap.before_start < gap.before_end or gap.after_start < gap.after_end
    return result + before[at:]


def test_gaps_rebuild_the_second_sequence_seeded() -> None:
    for seed in range(scaled(3_000, 40_000)):
        rng = random.Random(seed)
        symbols = rng.choice((1, 2, 3, 20, 1_000))
        before = [rng.randrange(symbols) for _ in range(rng.randrange(30))]
        after = list(before) if rng.random() < 0.7 else []
        for _ in range(rng.randrange(4)):
            at, count = rng.randrange(len(after) + 1), rng.randrange(4)
            after[at : at + count] = [rng.randrange(symbols) for _ in range(rng.randrange(4))]
        assert rebuilt(before, after) == after, f"seed {seed}"
        for run in common_runs(before, after):
            assert run.length > 0
            assert (
                before[run.before : run.before + run.length]
                == after[run.after : run.after + run.length]
            )


def kept(before: list[int], after: list[int]) -> int:
    return sum(run.length for run in common_runs(before, after))


def test_a_window_that_slides_is_found_even_where_items_repeat() -> None:
    rng = random.Random(1)
    history = [rng.randrange(2) for _ in range(200)]
    assert kept(history[:100], history[20:120]) >= 80
    assert kept(history[20:120], history[:100]) >= 80
    assert kept([7, *history[:100]], [7, *history[20:120]]) >= 81


def test_far_edits_keep_what_lies_between() -> None:
    before = list(range(1_000))
    after = [*range(10), -1, *range(12, 500), -2, -3, *range(500, 990)]
    assert kept(before, after) == 10 + 488 + 490


def test_items_moved_over_others_keep_the_longer_part() -> None:
    assert kept(list(range(100)), [*range(60, 100), *range(60)]) == 60


def test_common_ends_seeded() -> None:
    for seed in range(300):
        rng = random.Random(seed)
        size = rng.choice((0, 1, 5, 63, 64, 65, 300, STEP_MAX, 3 * STEP_MAX))
        before = rng.randbytes(size)
        changed = bytearray(before)
        for _ in range(rng.randrange(3)):
            if size:
                changed[rng.randrange(size)] ^= 1
        after = bytes(changed)
        pairs = list(zip(before, after, strict=True))
        front = next((at for at, (x, y) in enumerate(pairs) if x != y), size)
        back = next((at for at, (x, y) in enumerate(reversed(pairs)) if x != y), size)
        assert common_prefix(b"??" + before, 2, b"!" + after, 1, size) == front
        assert common_suffix(before + b"?", size, after + b"!!", size, size) == back
        limit = size // 2
        assert common_prefix(before, 0, after, 0, limit) == min(front, limit)
        assert common_suffix(before, size, after, size, limit) == min(back, limit)
