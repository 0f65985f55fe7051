"""Cuts rebuild the text after, and follow what states do with texts."""

import random

from eventlog.patches.sequence_alignment import Symbols
from eventlog.patches.text_cuts import text_cuts
from tests.support.scale import scaled


def cut(before: Symbols, after: Symbols) -> list[tuple[int, int, Symbols]]:
    """The cuts, checked: in order, apart, and giving `after`."""
    cuts = text_cuts(before, after)
    result, last = before, len(before)
    for start, end, inserted in reversed(cuts):
        assert 0 <= start <= end <= last
        result = result[:start] + inserted + result[end:]
        last = start
    assert result == after
    return cuts


def test_cuts_give_the_text_after_seeded() -> None:
    for seed in range(scaled(2_000, 30_000)):
        rng = random.Random(seed)
        symbols = rng.choice(("a", "ab", "ab\n", "a\U0001f600\ud800\n\r\x85\u2028"))
        before = "".join(rng.choices(symbols, k=rng.choice((0, 3, 40, 400, 900))))
        after = before
        for _ in range(rng.randrange(5)):
            at, count = rng.randrange(len(after) + 1), rng.choice((0, 1, 5, 300))
            fresh = "".join(rng.choices(symbols, k=rng.choice((0, 1, 20, 300))))
            after = after[:at] + fresh + after[at + count :]
        cut(before, after)
        cut(before.encode("utf-8", "surrogatepass"), after.encode("utf-8", "surrogatepass"))


def test_text_that_grows_is_one_insert() -> None:
    assert cut("streamed ans", "streamed answer") == [(12, 12, "wer")]


def test_positions_are_code_points() -> None:
    assert cut("\U0001f600\U0001f600x", "\U0001f600\U0001f600xy") == [(3, 3, "y")]


def test_far_edits_of_a_file_are_far_cuts() -> None:
    lines = [f"line {number}: something\n" for number in range(400)]
    after = list(lines)
    after[20] = "line 20: nothing\n"
    after[300:302] = []
    cuts = cut("".join(lines), "".join(after))
    assert len(cuts) == 2
    assert sum(len(inserted) for _, _, inserted in cuts) < 10


def test_a_log_that_slides_along_a_window_is_trimmed_and_appended() -> None:
    text = "".join(f"{number}:ok;" for number in range(2_000))
    cuts = cut(text[:4_000], text[350:4_350])
    assert [(end - start, len(inserted)) for start, end, inserted in cuts] == [(350, 0), (0, 350)]
