"""Small recorded sessions for tests of logs: a chain of events that is also in a log."""

import time
from collections.abc import Iterable
from contextlib import suppress

from eventlog.codec import EncodedEvent
from eventlog.errors import AppendUncertainError, LogUnavailableError
from eventlog.log import EventLog, LogRecord, Receipt
from tests.support.events import EventChain

AT_LAST_S_MAX = 90.0


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


def append_at_last(log: EventLog, events: Iterable[EncodedEvent]) -> Receipt:
    """As `append_all`, again until it is done, where the log's own deadline is a short one.

    Brokers that have only just begun, on a machine that is busy, need longer for the first append.
    """
    batch = list(events)
    give_up_at = time.monotonic() + AT_LAST_S_MAX
    while True:
        try:
            return append_all(log, batch)
        except (AppendUncertainError, LogUnavailableError):
            assert time.monotonic() < give_up_at, "the brokers never became ready"
            with suppress(LogUnavailableError):
                log.reconcile(batch[0].event.session_id)


def data_of(records: Iterable[LogRecord]) -> list[bytes]:
    """The exact bytes of each record."""
    return [record.data for record in records]
