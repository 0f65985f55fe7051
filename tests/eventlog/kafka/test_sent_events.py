"""A place that was sent once takes no other event."""

import pytest

from eventlog.errors import FencedError
from eventlog.kafka.sent_events import SESSIONS_KEPT_MAX, SentEvents
from eventlog.keeping.append_rule import Append
from tests.support.events import EventChain


def chains() -> tuple[EventChain, EventChain]:
    """Two chains that begin alike and differ from step 1 on."""
    first, second = EventChain("s"), EventChain("s", seed=1)
    first.seed()
    second.events, second.head = list(first.events), first.head
    for chain in (first, second):
        chain.call()
        chain.returned()
    return first, second


def append_of(chain: EventChain, start: int, end: int) -> Append:
    return Append("s", chain.events[start:end], start - 1, "w")


def test_the_same_bytes_may_be_sent_again_and_others_may_not() -> None:
    first, second = chains()
    sent = SentEvents()
    sent.note(append_of(first, 1, 3))
    sent.require_same(append_of(first, 1, 3))
    sent.require_same(append_of(first, 1, 2))
    with pytest.raises(FencedError, match="step 1 of attempt 1"):
        sent.require_same(append_of(second, 1, 2))
    with pytest.raises(FencedError, match="step 2 of attempt 1"):
        sent.require_same(append_of(second, 2, 3))


def test_a_higher_attempt_may_take_the_place() -> None:
    first, second = chains()
    sent = SentEvents()
    sent.note(append_of(first, 1, 3))
    second.events = second.events[:1]
    second.head = second.head._replace(step=0, digest=second.events[0].digest)
    second.resumed(attempt=2)
    sent.require_same(append_of(second, 1, 2))
    sent.forget(append_of(second, 1, 2))
    sent.require_same(append_of(first, 1, 3))


def test_what_is_committed_is_forgotten() -> None:
    first, second = chains()
    sent = SentEvents()
    sent.note(append_of(first, 1, 3))
    sent.forget(append_of(first, 1, 2))
    sent.require_same(append_of(second, 1, 2))
    with pytest.raises(FencedError):
        sent.require_same(append_of(second, 2, 3))


def test_memory_is_bounded() -> None:
    sent = SentEvents()
    for number in range(SESSIONS_KEPT_MAX + 1):
        chain = EventChain(f"s{number}")
        chain.seed()
        sent.note(Append(chain.session_id, chain.events, -1, "w"))
    other = EventChain("s0", seed=1)
    other.seed()
    sent.require_same(Append("s0", other.events, -1, "w"))
