"""`Cut`: a join semilattice over partitions, with exclusive ends."""

import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.cut import Cut, CutOrder

ENDS = st.dictionaries(st.integers(0, 5), st.integers(0, 6), max_size=4)
CUTS = ENDS.map(Cut)


def covered(cut: Cut) -> set[tuple[int, int]]:
    """A cut's meaning, spelled out: the records that it covers."""
    return {
        (partition, offset)
        for partition in range(8)
        for offset in range(8)
        if cut.holds(partition, offset)
    }


@given(CUTS, CUTS)
def test_covering_and_merging_are_those_of_sets_of_records(a: Cut, b: Cut) -> None:
    assert a.covers(b) == (covered(a) >= covered(b))
    assert covered(a.merge(b)) == covered(a) | covered(b)
    assert (a == b) == (covered(a) == covered(b))


@given(CUTS, CUTS)
def test_compare_says_how_two_sets_of_records_lie(a: Cut, b: Cut) -> None:
    expected = {
        (True, True): CutOrder.EQUAL,
        (True, False): CutOrder.AFTER,
        (False, True): CutOrder.BEFORE,
        (False, False): CutOrder.APART,
    }[covered(a) >= covered(b), covered(b) >= covered(a)]
    assert a.compare(b) is expected


@given(CUTS, CUTS, CUTS)
def test_merge_is_a_join(a: Cut, b: Cut, c: Cut) -> None:
    assert a.merge(a) == a
    assert a.merge(b) == b.merge(a)
    assert a.merge(b).merge(c) == a.merge(b.merge(c))
    assert a.merge(Cut.empty()) == a
    merged = a.merge(b)
    assert merged.covers(a)
    assert merged.covers(b)
    if c.covers(a) and c.covers(b):
        assert c.covers(merged)


@given(CUTS, st.integers(0, 5), st.integers(0, 6))
def test_including_a_record_ends_just_past_it(cut: Cut, partition: int, offset: int) -> None:
    after = cut.including(partition, offset)
    assert after.holds(partition, offset)
    assert after.end(partition) == max(cut.end(partition), offset + 1)
    assert after.covers(cut)


@given(CUTS)
def test_every_form_leads_back(cut: Cut) -> None:
    assert Cut(cut.as_dict()) == cut
    assert Cut.from_names(cut.as_names()) == cut
    assert pickle.loads(pickle.dumps(cut)) == cut
    assert copy.deepcopy(cut) == cut
    assert eval(repr(cut)) == cut
    assert hash(Cut(cut.as_dict())) == hash(cut)
    assert list(cut.partitions()) == sorted(cut.as_dict())


def test_the_end_is_exclusive() -> None:
    cut = Cut({0: 5})
    assert cut.end(0) == 5
    assert cut.holds(0, 4)
    assert not cut.holds(0, 5)
    assert not cut.holds(0, -1)
    assert cut.end(1) == 0


def test_a_partition_of_which_nothing_is_covered_is_no_part_of_the_cut() -> None:
    assert Cut({0: 0, 3: 1}) == Cut({3: 1})
    assert Cut({0: 0}) == Cut.empty() == Cut()
    assert list(Cut({0: 0, 3: 1}).partitions()) == [3]


def test_a_cut_cannot_be_changed_even_through_what_it_was_made_from() -> None:
    ends = {0: 5}
    cut = Cut(ends)
    ends[0] = 9
    cut.as_dict()[0] = 7
    with pytest.raises(AttributeError):
        cut.other = 1  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        cut._ends = {}
    assert cut == Cut({0: 5})


@pytest.mark.parametrize(
    "ends", [{0: -1}, {-1: 0}, {0: 1.0}, {0: True}, {"0": 1}, {0: None}, {True: 1}]
)
def test_what_is_no_count_is_refused(ends: dict[int, int]) -> None:
    with pytest.raises(ValueError, match="must be an int from 0"):
        Cut(ends)


@pytest.mark.parametrize("name", ["", "01", "-1", "a", "1.0", "٣", " 1"])
def test_a_name_that_is_no_partition_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="not a partition"):
        Cut.from_names({name: 1})


def test_a_cut_is_equal_to_cuts_only() -> None:
    assert Cut({0: 1}) != {0: 1}
