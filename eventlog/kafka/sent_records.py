"""`sent_events_of`: what was ever sent for one session, committed or not, from an offset on."""

import time
from hashlib import sha256
from typing import Final

from eventlog.codec import EncodedEvent, decode_event
from eventlog.errors import SteplogError
from eventlog.kafka.client import TopicClient
from eventlog.kafka.client_errors import BrokersUnavailable
from eventlog.kafka.rereading import SeenEvent

_FETCH_S: Final = 0.2


def sent_events_of(
    client: TopicClient, session_id: str, partition: int, offset: int, deadline: float
) -> list[SeenEvent]:
    """The session's events from `offset` to the partition's present end, in the order sent.

    `deadline` on the monotonic clock. Raises `BrokersUnavailable`, `TopicMissing`, `AccessDenied`.
    """
    key, found = session_id.encode(), []
    reader = client.open_reader(committed=False)
    try:
        end = reader.high_watermarks([partition], _left_s(deadline))[partition]
        reader.seek({partition: offset} if offset < end else {})
        while reader.positions().get(partition, end) < end:
            if time.monotonic() >= deadline:
                raise BrokersUnavailable(f"partition {partition} was not read to {end} in time")
            for record in reader.fetch(min(_FETCH_S, _left_s(deadline))):
                if record.key == key and record.offset < end:
                    found += _decoded(record.offset, record.value or b"")
    finally:
        reader.close()
    return found


def _left_s(deadline: float) -> float:
    return max(0.05, deadline - time.monotonic())


def _decoded(offset: int, data: bytes) -> list[SeenEvent]:
    try:
        event = decode_event(data)
    except SteplogError:
        return []  # It is no event, for the mirror too.
    return [SeenEvent(offset, EncodedEvent(event, data, sha256(data).digest()))]
