"""Every keeper: lines, branches, tails and cuts, read back."""

from itertools import islice

import pytest

from eventlog.cut import Cut
from eventlog.errors import LinkBrokenError, SessionNotFoundError, StepNotFoundError
from eventlog.event import LineHead
from eventlog.log import EventLog
from tests.support.events import EventChain
from tests.support.keepers import Keeper
from tests.support.recorded import append_all, data_of, seeded_chain


def rewound(log: EventLog, chain: EventChain, step: int, calls: int = 3) -> EventChain:
    """The chain taken back to `step` and gone on with `calls` other events, in `log`."""
    base = chain.events[step].event
    claim = chain.resumed(
        LineHead("s", step, base.attempt, chain.events[step].digest), writer=log.writer_id
    )
    append_all(log, [claim, *(chain.call() for _ in range(calls))])
    return chain


def steps_of(log: EventLog, session_id: str, *bounds: int | None) -> list[int]:
    return [record.prefix.step for record in log.read_session(session_id, *bounds)]  # type: ignore[arg-type]


def test_ranges_are_half_open(log: EventLog) -> None:
    seeded_chain(log, "s", calls=3)
    assert steps_of(log, "s") == [0, 1, 2, 3, 4, 5, 6]
    assert steps_of(log, "s", 2) == [2, 3, 4, 5, 6]
    assert steps_of(log, "s", 2, 4) == [2, 3]
    assert steps_of(log, "s", 0, 7) == [0, 1, 2, 3, 4, 5, 6]
    assert steps_of(log, "s", 3, 3) == []
    assert steps_of(log, "s", 7) == []


@pytest.mark.parametrize("bounds", [(0, 8), (8, None), (8, 9), (-1, 3), (4, 3)])
def test_bounds_past_the_line_are_refused_at_once(
    log: EventLog, bounds: tuple[int, int | None]
) -> None:
    seeded_chain(log, "s", calls=3)
    with pytest.raises(StepNotFoundError) as caught:
        log.read_session("s", *bounds)
    assert caught.value.session_id == "s"


def test_an_unknown_session_is_refused_at_once(log: EventLog) -> None:
    with pytest.raises(SessionNotFoundError, match="nobody"):
        log.read_session("nobody")
    with pytest.raises(SessionNotFoundError, match="nobody"):
        log.read_records("nobody")
    with pytest.raises(SessionNotFoundError, match="nobody"):
        log.session_info("nobody")
    assert not log.holds_session("nobody")
    seeded_chain(log, "somebody")
    assert log.holds_session("somebody")


def test_records_carry_offset_digest_bytes_and_prefix(log: EventLog) -> None:
    chain = seeded_chain(log, "s")
    for record, encoded in zip(log.read_session("s"), chain.events, strict=True):
        event = encoded.event
        assert (record.digest, record.data) == (encoded.digest, encoded.data)
        assert record.prefix == event[:7]
    offsets = [record.offset for record in log.read_session("s")]
    assert offsets == sorted(set(offsets))


def test_long_lines_are_read_in_order_across_pages(log: EventLog) -> None:
    chain = seeded_chain(log, "s", calls=700)
    assert data_of(log.read_session("s")) == [encoded.data for encoded in chain.events]
    assert steps_of(log, "s", 510, 516) == [510, 511, 512, 513, 514, 515]


def test_an_iterator_left_alone_stops_nobody(log: EventLog) -> None:
    chain = seeded_chain(log, "s", calls=700)
    reading = log.read_session("s")
    first = list(islice(reading, 3))
    append_all(log, [chain.call()])
    rewound(log, chain, 2)
    rest = list(reading)
    assert len(first) + len(rest) == 1_401


def test_a_line_is_what_stands_after_each_rewind(log: EventLog) -> None:
    chain = seeded_chain(log, "s", calls=5)
    for step in (8, 3, 4, 1, 2):
        rewound(log, chain, step)
        standing = [encoded.data for encoded in chain.events]
        assert data_of(log.read_session("s")) == standing
        for start in range(len(standing)):
            assert data_of(log.read_session("s", start, start + 1)) == [standing[start]]


def test_through_reads_any_chain_there_ever_was(log: EventLog) -> None:
    chain = seeded_chain(log, "s", calls=4)
    lines = [list(chain.events)]
    for step in (6, 2, 4):
        rewound(log, chain, step)
        lines.append(list(chain.events))
    for line in lines:
        for end in range(1, len(line) + 1):
            through = line[end - 1].digest
            expected = [encoded.data for encoded in line[:end]]
            assert data_of(log.read_session("s", through=through)) == expected
    with pytest.raises(StepNotFoundError):
        log.read_session("s", 0, 9, through=lines[0][4].digest)
    with pytest.raises(StepNotFoundError):
        log.read_session("s", through=bytes(32))


def test_read_records_gives_everything_ever_kept_in_log_order(log: EventLog) -> None:
    chain = seeded_chain(log, "s", calls=4)
    every = list(chain.events)
    for step in (6, 2, 4):
        rewound(log, chain, step)
        every += chain.events[step + 1 :]
        seeded_chain(log, f"between {step}")
    records = list(log.read_records("s"))
    assert data_of(records) == [encoded.data for encoded in every]
    assert [record.offset for record in records] == sorted(record.offset for record in records)


def test_a_branch_reads_its_parents_events_and_then_its_own(log: EventLog) -> None:
    parent = seeded_chain(log, "s", calls=4)
    for fork_step in range(9):
        base = parent.events[fork_step]
        head = LineHead("s", fork_step, base.event.attempt, base.digest)
        branch = EventChain(f"b{fork_step}", seed=1)
        append_all(log, [branch.forked(head, writer=log.writer_id), branch.call()])
        expected = [encoded.data for encoded in parent.events[: fork_step + 1] + branch.events]
        assert data_of(log.read_session(f"b{fork_step}")) == expected
        owners = [record.prefix.session_id for record in log.read_session(f"b{fork_step}")]
        assert owners == ["s"] * (fork_step + 1) + [f"b{fork_step}"] * 2
        assert data_of(log.read_records(f"b{fork_step}")) == expected[fork_step + 1 :]
        for step in range(len(expected)):
            one = data_of(log.read_session(f"b{fork_step}", step, step + 1))
            assert one == [expected[step]]


def test_a_branch_keeps_its_prefix_whatever_its_parent_becomes(log: EventLog) -> None:
    parent = seeded_chain(log, "s", calls=4)
    branch = EventChain("b", seed=1)
    append_all(log, [branch.forked(parent.head, writer=log.writer_id), branch.call()])
    expected = [encoded.data for encoded in parent.events + branch.events]
    rewound(log, parent, 2)
    append_all(log, [parent.closed()])
    assert data_of(log.read_session("b")) == expected


def test_a_branch_of_a_superseded_event_reads_that_chain(log: EventLog) -> None:
    parent = seeded_chain(log, "s", calls=4)
    old, old_head = list(parent.events), parent.head
    rewound(log, parent, 2, calls=9)
    branch = EventChain("b", seed=1)
    append_all(log, [branch.forked(old_head, writer=log.writer_id)])
    expected = [encoded.data for encoded in old + branch.events]
    assert data_of(log.read_session("b")) == expected


def test_branches_of_branches(log: EventLog) -> None:
    chain = seeded_chain(log, "b0", calls=3)
    expected = list(chain.events)
    for depth in range(1, 6):
        # Each branch leaves its parent two events before the parent's head.
        base = expected[-2]
        head = LineHead(base.event.session_id, base.event.step, 1, base.digest)
        chain = EventChain(f"b{depth}", seed=depth)
        append_all(log, [chain.forked(head, writer=log.writer_id), chain.call(), chain.call()])
        expected = [*expected[:-1], *chain.events]
        assert data_of(log.read_session(f"b{depth}")) == [each.data for each in expected]


def test_a_branch_forked_inside_its_parents_prefix(log: EventLog) -> None:
    root = seeded_chain(log, "s", calls=4)
    first = EventChain("b1", seed=1)
    append_all(log, [first.forked(root.head, writer=log.writer_id)])
    second = EventChain("b2", seed=2)
    base = root.events[3]
    append_all(log, [second.forked(LineHead("b1", 3, 1, base.digest), writer=log.writer_id)])
    expected = [encoded.data for encoded in root.events[:4] + second.events]
    assert data_of(log.read_session("b2")) == expected
    assert data_of(log.read_session("b2", 1, 3)) == expected[1:3]


def test_branches_each_forked_inside_the_prefix_of_the_one_before(log: EventLog) -> None:
    """The third was taken for broken: its parent's fork was looked for in a shorter prefix."""
    root = seeded_chain(log, "b0", calls=4)
    first = EventChain("b1", seed=1)
    append_all(log, [first.forked(root.head, writer=log.writer_id)])
    for depth, step in enumerate((6, 4, 5, 2), 2):
        parent = f"b{depth - 1}"
        base = list(log.read_session(parent, 0, step + 1))[-1]
        branch = EventChain(f"b{depth}", seed=depth)
        head = LineHead(parent, step, 1, base.digest)
        append_all(log, [branch.forked(head, writer=log.writer_id)])
        expected = data_of(log.read_session(parent, 0, step + 1))
        expected += [encoded.data for encoded in branch.events]
        assert data_of(log.read_session(f"b{depth}")) == expected


@pytest.mark.parametrize(
    "head",
    [
        LineHead("s", 4, 1, bytes(32)),
        LineHead("s", 400, 1, bytes(32)),
        LineHead("nobody", 4, 1, bytes(32)),
        LineHead("b", 4, 1, bytes(32)),
    ],
    ids=["no such event", "no such step", "no such session", "itself"],
)
def test_a_branch_of_nothing_is_told_when_it_is_read(log: EventLog, head: LineHead) -> None:
    seeded_chain(log, "s", calls=4)
    branch = EventChain("b", seed=1)
    append_all(log, [branch.forked(head, writer=log.writer_id)])
    with pytest.raises(LinkBrokenError) as caught:
        list(log.read_session("b", head.step, head.step + 1))
    assert caught.value.session_id == "b"


def test_a_branch_of_the_wrong_step_is_told_when_it_is_read(log: EventLog) -> None:
    parent = seeded_chain(log, "s", calls=4)
    branch = EventChain("b", seed=1)
    wrong = parent.head._replace(step=6)
    append_all(log, [branch.forked(wrong, writer=log.writer_id)])
    with pytest.raises(LinkBrokenError):
        list(log.read_session("b"))


def test_a_branch_in_the_prefix_of_another_must_stand_on_that_prefix(log: EventLog) -> None:
    root = seeded_chain(log, "s", calls=4)
    old = list(root.events)
    rewound(log, root, 2, calls=6)
    first = EventChain("b1", seed=1)
    append_all(log, [first.forked(root.head, writer=log.writer_id)])
    second = EventChain("b2", seed=2)
    append_all(log, [second.forked(LineHead("b1", 5, 1, old[5].digest), writer=log.writer_id)])
    with pytest.raises(LinkBrokenError):
        list(log.read_session("b2", 0, 2))


def test_through_reaches_into_a_branchs_prefix(log: EventLog) -> None:
    parent = seeded_chain(log, "s", calls=4)
    branch = EventChain("b", seed=1)
    append_all(log, [branch.forked(parent.head, writer=log.writer_id), branch.call()])
    line = [*parent.events, *branch.events]
    for end in range(1, len(line) + 1):
        records = log.read_session("b", through=line[end - 1].digest)
        assert data_of(records) == [encoded.data for encoded in line[:end]]


def test_the_tail_gives_every_record_once_in_log_order(log: EventLog) -> None:
    assert list(log.tail_events(Cut.empty())) == []
    chains = [seeded_chain(log, f"s{number}", calls=300) for number in range(4)]
    first = log.end_cut()
    late = seeded_chain(log, "late")
    everything = list(log.tail_events(Cut.empty()))
    for chain in [*chains, late]:
        own = [record for record in everything if record.prefix.session_id == chain.session_id]
        assert data_of(own) == [each.data for each in chain.events]
    places = [(record.partition, record.offset) for record in everything]
    assert places == sorted(set(places))
    assert data_of(log.tail_events(first)) == [encoded.data for encoded in late.events]
    assert list(log.tail_events(log.end_cut())) == []


def test_the_end_covers_what_was_acknowledged(log: EventLog) -> None:
    chain = seeded_chain(log, "s")
    before = log.end_cut()
    receipt = append_all(log, [chain.call()])
    record = next(log.read_session("s", receipt.last_step))
    assert record.offset == receipt.offset
    assert not before.holds(record.partition, receipt.offset)
    assert log.end_cut().holds(record.partition, receipt.offset)
    assert log.end_cut().covers(before)


def test_a_tail_ends_at_the_end_there_was_when_it_began(log: EventLog) -> None:
    chain = seeded_chain(log, "s")
    tail = log.tail_events(Cut.empty())
    first = next(tail)
    append_all(log, [chain.call() for _ in range(10)])
    assert first.prefix.step == 0
    assert len(list(tail)) in (4, 14)


def test_cuts_of_consumers_are_remembered_and_never_move_back(keeper: Keeper) -> None:
    log = keeper.log
    assert log.committed_cut("follower") == Cut.empty()
    log.commit_cut("follower", Cut({0: 5, 3: 2}))
    log.commit_cut("follower", Cut({0: 4, 1: 1}))
    log.commit_cut("follower", Cut({0: 4, 1: 1}))
    log.commit_cut("other", Cut({0: 9}))
    expected = Cut({0: 5, 1: 1, 3: 2})
    assert log.committed_cut("follower") == expected
    assert keeper.another_handle().committed_cut("follower") == expected


def test_another_handle_reads_what_was_acknowledged(keeper: Keeper) -> None:
    reader = keeper.another_handle()
    chain = seeded_chain(keeper.log, "s")
    for _ in range(50):
        append_all(keeper.log, [chain.call()])
        assert reader.session_info("s").head == chain.head
        assert next(reader.read_session("s", chain.head.step)).digest == chain.head.digest
