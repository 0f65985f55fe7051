"""What a writer learns from the log after its producer was lost."""

from eventlog.event import SessionResumed
from eventlog.kafka.owned_lines import line_after
from eventlog.kafka.rereading import SeenEvent, claims_sent, reread_line
from eventlog.line_state import LineState
from tests.support.events import EventChain

ME = "writer"


def seen(chain: EventChain, start: int = 0) -> list[SeenEvent]:
    return [SeenEvent(10 + step, event) for step, event in enumerate(chain.events[start:], start)]


def test_what_was_committed_stands_with_its_offset() -> None:
    chain = EventChain("s")
    chain.seed(writer=ME)
    line = line_after("s", chain.events, None)
    assert line is not None
    chain.call()
    chain.returned()
    now = reread_line("s", line, seen(chain, 1))
    assert now.line is not None
    assert (now.line.next_step, now.line.head) == (3, chain.events[2].digest)
    assert now.event_ids == tuple(event.event.event_id for event in chain.events[1:])
    assert now.stands == {chain.events[1].digest: 11, chain.events[2].digest: 12}


def test_a_seed_that_was_not_committed_leaves_nothing() -> None:
    now = reread_line("s", LineState(), [])
    assert now.line is not None
    assert not now.line.begun
    assert now.stands == {}


def test_a_seed_that_was_committed_is_found() -> None:
    chain = EventChain("s")
    chain.seed(writer=ME)
    now = reread_line("s", LineState(), seen(chain))
    assert now.line is not None
    assert now.line.writer == ME
    assert list(now.stands) == [chain.events[0].digest]


def test_a_claim_of_another_on_the_head_is_followed() -> None:
    chain = EventChain("s")
    chain.seed(writer=ME)
    line = line_after("s", chain.events, None)
    assert line is not None
    chain.resumed(writer="another")
    now = reread_line("s", line, seen(chain, 1))
    assert now.line is not None
    assert (now.line.writer, now.line.attempt) == ("another", 2)


def test_a_claim_on_an_event_before_these_cannot_be_judged() -> None:
    chain = EventChain("s")
    first = chain.seed(writer=ME)
    head = chain.head
    chain.call()
    line = line_after("s", chain.events, None)
    assert line is not None
    chain.resumed(head, writer="another")
    assert chain.events[-1].event.parent == first.digest
    claim = SeenEvent(12, chain.events[-1])
    assert reread_line("s", line, [claim]).line is None


def test_claims_are_found_among_all_that_was_sent() -> None:
    chain = EventChain("s")
    chain.seed(writer=ME)
    claim = chain.resumed(writer="another")
    assert isinstance(claim.event.body, SessionResumed)
    assert claims_sent(seen(chain)) == [(2, claim.digest)]
