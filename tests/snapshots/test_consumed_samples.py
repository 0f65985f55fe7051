"""`ConsumedSamples` at its bounds: what it holds may be more than Python's `len` can say."""

import sys

import pytest

from snapshots.consumed_samples import ConsumedSamples, IntRanges


def test_more_ids_than_len_can_say_are_counted_and_shown() -> None:
    """`repr` failed with an OverflowError, and so did `if done:`."""
    done = ConsumedSamples()
    done.load_state_dict({"format": 1, "ints": [[-1, 2**64]], "texts": ["a"]})
    assert done.count == 2**64 + 2
    assert repr(done) == f"ConsumedSamples({2**64 + 2} ids)"
    assert done
    assert not ConsumedSamples()
    with pytest.raises(OverflowError):  # Python's own, as of a range; `count` says it.
        len(done)
    ranges = IntRanges([[0, sys.maxsize]])
    assert len(ranges) == ranges.count == sys.maxsize
    ranges.add_range(sys.maxsize, 2**80)
    assert ranges.count == 2**80
    assert ranges
    assert not IntRanges()
