"""Small recorded sessions for tests of logs: a chain of events that is also in a log."""

from collections.abc import Iterable

from eventlog.codec import EncodedEvent
from eventlog.log import EventLog, LogRecord, Receipt
from tests.support.events import EventChain


def seeded_chain(log: EventLog, session_id: str, calls: int = 2, seed: int = 0) -> EventChain:
    """A session of 1 + 2 * `calls` events, owned by `log`'s writer, appended as one batch."""
    chain = EventChain(session_id, seed)
    chain.seed(writer=log.writer_id)
    for _ in range(calls):
        chain.call()
        chain.returned()
    append_all(log, chain.events)
    return chain


def append_all(log: EventLog, events: Iterable[EncodedEvent]) -> Receipt:
    """Append events of one session as one batch, on the step before the first."""
    batch = list(events)
    first = batch[0].event
    return log.append_events(first.session_id, batch, expected_step=first.step - 1)


def data_of(records: Iterable[LogRecord]) -> list[bytes]:
    """The exact bytes of each record."""
    return [record.data for record in records]
