"""Lines a writer owns: what is judged in memory, and what is left to the mirror."""

from eventlog.event import SessionReleased
from eventlog.kafka.owned_lines import LINES_KEPT_MAX, OwnedLines, line_after
from eventlog.keeping.append_rule import Append
from eventlog.line_state import LineState
from tests.support.events import EventChain

ME = "writer"


def append_of(chain: EventChain, count: int = 1) -> Append:
    """An append of the chain's last events."""
    events = chain.events[-count:]
    return Append(chain.session_id, events, events[0].event.step - 1, ME)


def begun(lines: OwnedLines, session_id: str = "s") -> EventChain:
    """A session that `lines` know from its seed on."""
    chain = EventChain(session_id)
    chain.seed(writer=ME)
    line = line_after(session_id, chain.events, None)
    assert line is not None
    lines.advance(append_of(chain), line, 1)
    return chain


def line_of(lines: OwnedLines, session_id: str = "s") -> LineState:
    owned = lines.find(session_id)
    assert owned is not None
    return owned.line


def test_the_next_event_is_judged_in_memory() -> None:
    lines = OwnedLines(ME)
    chain = begun(lines)
    chain.call()
    after = lines.judge(append_of(chain), line_of(lines), ())
    assert after is not None
    assert (after.next_step, after.head) == (2, chain.events[-1].digest)
    lines.advance(append_of(chain), after, 5)
    owned = lines.find("s")
    assert owned is not None
    assert (owned.line, owned.position) == (after, 5)


def test_a_batch_that_follows_what_is_staged_is_judged_on_it() -> None:
    lines = OwnedLines(ME)
    chain = begun(lines)
    first = chain.call()
    staged = lines.judge(append_of(chain), line_of(lines), ())
    assert staged is not None
    chain.returned()
    chain.verified()
    after = lines.judge(append_of(chain, 2), staged, {first.event.event_id})
    assert after is not None
    assert after.next_step == 4


def test_what_is_not_plain_is_left_to_the_mirror() -> None:
    lines = OwnedLines(ME)
    chain = begun(lines)
    chain.call()
    append = append_of(chain)
    line = lines.judge(append, line_of(lines), ())
    assert line is not None
    lines.advance(append, line, 2)
    # A retry, a place that is taken, an attempt nobody claimed, a claim, and a head that was read.
    assert lines.judge(append, line, ()) is None
    rival = EventChain("s", seed=9)
    rival.head = chain.head._replace(step=0)
    rival.call()
    assert lines.judge(append_of(rival), line, ()) is None
    rival.head = chain.head._replace(attempt=2)
    rival.call()
    assert lines.judge(append_of(rival), line, ()) is None
    rival.resumed(chain.head, writer=ME)
    assert lines.judge(append_of(rival), line, ()) is None
    chain.returned()
    assert lines.judge(append_of(chain)._replace(head=chain.head), line, ()) is None
    assert lines.judge(append_of(chain), line, {chain.events[-1].event.event_id}) is None
    assert lines.judge(append_of(chain), line, ()) is not None


def test_a_closed_line_takes_a_verification_and_no_call() -> None:
    lines = OwnedLines(ME)
    chain = begun(lines)
    chain.closed()
    closed = lines.judge(append_of(chain), line_of(lines), ())
    assert closed is not None
    lines.advance(append_of(chain), closed, 2)
    chain.call()
    assert lines.judge(append_of(chain), closed, ()) is None
    chain.events.pop()
    chain.head = chain.head._replace(step=1, digest=chain.events[-1].digest)
    chain.verified()
    assert lines.judge(append_of(chain), closed, ()) is not None


def test_a_released_line_is_forgotten() -> None:
    lines = OwnedLines(ME)
    chain = begun(lines)
    chain.append(SessionReleased())
    released = lines.judge(append_of(chain), line_of(lines), ())
    assert released is not None
    lines.advance(append_of(chain), released, 2)
    assert lines.find("s") is None


def test_a_line_of_another_writer_is_not_held() -> None:
    lines = OwnedLines(ME)
    chain = EventChain("s")
    chain.seed(writer="another")
    line = line_after("s", chain.events, None)
    assert line is not None
    lines.advance(append_of(chain), line, 1)
    assert lines.find("s") is None


def test_memory_is_bounded() -> None:
    lines = OwnedLines(ME)
    for number in range(LINES_KEPT_MAX + 10):
        begun(lines, f"s{number}")
    assert len(lines.items()) == LINES_KEPT_MAX
    assert lines.find("s0") is None
