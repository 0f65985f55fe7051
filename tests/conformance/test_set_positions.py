"""Every keeper: where sessions stood at a cut, whatever came after it; and the trees below it."""

import pytest

from eventlog.content import STATE_PATCH, Content
from eventlog.cut import Cut
from eventlog.errors import CheckpointError
from eventlog.event import LineHead, SessionForked, StateChange, StateChanged, StateUnknown
from eventlog.log import EventLog
from eventlog.merkle_root import MerkleRoot
from snapshots.checkpoints.set_entry import SessionPosition
from snapshots.sets.positions import began_after, extended_trees, position_at, records_between
from tests.support.events import EventChain, merkle_root
from tests.support.keepers import Keeper
from tests.support.recorded import append_all, seeded_chain


def position(log: EventLog, session_id: str, cut: Cut) -> SessionPosition | None:
    return position_at(log, log.session_info(session_id), cut)


def place(chain: EventChain) -> tuple[int, bytes]:
    return chain.head.step, chain.head.digest


def test_the_head_is_the_position_while_nothing_came_after(log: EventLog) -> None:
    chain = seeded_chain(log, "s")
    found = position(log, "s", log.end_cut())
    assert found is not None
    assert found[:2] == place(chain)
    assert found.fork_event is None


def test_what_is_appended_after_the_cut_does_not_count(log: EventLog) -> None:
    chain = seeded_chain(log, "s")
    seeded_chain(log, "other")
    cut, then = log.end_cut(), place(chain)
    append_all(log, [chain.call(), chain.returned()])
    found = position(log, "s", cut)
    assert found is not None
    assert found[:2] == then


@pytest.mark.parametrize("after", ["rewound", "closed", "released", "closed and reopened"])
def test_a_line_that_turned_elsewhere_after_the_cut_is_read_as_it_was(
    keeper: Keeper, after: str
) -> None:
    log = keeper.log
    chain = seeded_chain(log, "s", calls=4)
    cut, then = log.end_cut(), place(chain)
    if after == "rewound":
        other = keeper.another_handle()
        other.take_over(["s"], stands_on={"s": chain.events[2].digest}, reason="x")
    elif after == "released":
        log.release("s")
    else:
        append_all(log, [chain.closed()])
    if after == "closed and reopened":
        log.take_over(["s"], stands_on={"s": chain.head.digest}, reason="x")
    found = position(log, "s", cut)
    assert found is not None
    assert found[:2] == then
    assert log.session_info("s").head.digest != then[1]


def test_a_rewind_below_the_cut_counts(log: EventLog) -> None:
    chain = seeded_chain(log, "s", calls=4)
    log.take_over(["s"], stands_on={"s": chain.events[2].digest}, reason="x")
    rewound = log.session_info("s").head
    cut = log.end_cut()
    log.take_over(["s"], stands_on={"s": chain.events[6].digest}, reason="x")
    found = position(log, "s", cut)
    assert found is not None
    assert found[:2] == (rewound.step, rewound.digest) == (3, rewound.digest)


def test_sessions_that_had_ended_or_not_begun_have_no_position(log: EventLog) -> None:
    ended = seeded_chain(log, "ended")
    append_all(log, [ended.closed()])
    cut = log.end_cut()
    seeded_chain(log, "later")
    assert position(log, "ended", cut) is None
    assert position(log, "later", cut) is None
    assert (began_after(log, "ended", cut), began_after(log, "later", cut)) == (False, True)


def test_a_branch_tells_its_fork_event(log: EventLog) -> None:
    parent = seeded_chain(log, "s", calls=3)
    branch = EventChain("b")
    branch.head = LineHead("b", 3, 1, parent.events[3].digest)
    fork = branch.append(SessionForked("s", 3, log.writer_id))
    append_all(log, [fork])
    cut = log.end_cut()
    append_all(log, [branch.call()])
    found = position(log, "b", cut)
    assert found is not None
    assert found[:2] == (4, fork.digest)
    assert found.fork_event == fork.digest


def test_the_state_is_that_of_the_last_change_however_long_ago(log: EventLog) -> None:
    chain = EventChain("s")
    chain.seed(writer=log.writer_id)
    digest = bytes(range(32))
    changed = StateChange(Content(STATE_PATCH, b"\x90"), digest)
    chain.append(StateChanged("x"), state_change=changed)
    for _ in range(150):
        chain.call()
    append_all(log, chain.events)
    cut = log.end_cut()
    append_all(log, [chain.append(StateChanged("x"), state_change=StateUnknown("not said"))])
    before, after = position(log, "s", cut), position(log, "s", log.end_cut())
    assert before is not None
    assert after is not None
    assert (before.state_digest, after.state_digest) == (digest, None)


def test_trees_grow_from_cut_to_cut_to_what_the_whole_log_gives(log: EventLog) -> None:
    trees: dict[int, MerkleRoot] = {}
    covered = Cut.empty()
    for number in range(6):
        seeded_chain(log, f"s-{number}", calls=number)
        cut = log.end_cut()
        seeded_chain(log, f"late-{number}", calls=1)
        trees = extended_trees(log, trees, covered, cut)
        covered = cut
    whole: dict[int, list[bytes]] = {}
    for record in log.tail_events(Cut.empty()):
        if covered.holds(record.partition, record.offset):
            whole.setdefault(record.partition, []).append(record.data)
    assert {number: tree.root() for number, tree in trees.items()} == {
        number: merkle_root(leaves) for number, leaves in whole.items()
    }
    assert not list(records_between(log, covered, covered))


def test_trees_of_a_cut_that_is_not_of_this_log_are_refused(log: EventLog) -> None:
    seeded_chain(log, "s")
    with pytest.raises(CheckpointError, match="partition 3000"):
        extended_trees(log, {}, Cut.empty(), Cut({3000: 5}))
