"""`SentScan`: what was ever sent to a partition, committed or not.

A claim's attempt must be above every one that was ever sent for its session, also in a transaction
that was aborted: readers of uncommitted records see those too. So the partition is read once more,
uncommitted; each of its offsets once in a mirror's life. Below the mirror's own position, what was
not committed never will be, and is kept; what lies above may still be either, and is only counted.
"""

import time
from bisect import bisect_right
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from eventlog.codec import decode_prefix
from eventlog.errors import EventCorruptError, LogUnavailableError
from eventlog.kafka.client import TopicClient, TopicReader, TopicRecord
from eventlog.kafka.client_errors import BrokersUnavailable, OffsetOutOfRange
from eventlog.kafka.errors import faults_as_ours
from eventlog.mirroring.file import MirrorFile
from eventlog.mirroring.partition_reading import PartitionRows
from eventlog.mirroring.reader import MirrorReader
from eventlog.mirroring.rows import Aborted
from eventlog.mirroring.turns import handle_closed
from eventlog.session_line import bounds_problem

PENDING_MAX: Final = 20_000
"""Records above the mirror's position that are remembered, not read again, until it passes them."""
_FETCH_S: Final = 0.5
_RETRY_S: Final = 0.05
_LEAST_S: Final = 0.05


class SentRecord(NamedTuple):
    """A record as it was sent; `session_id` is empty where it is no event of its key's session."""

    offset: int
    session_id: str
    step: int
    attempt: int
    kind: str


class SentScan:
    """Scans partitions of one mirror's topic; used by one thread at a time."""

    def __init__(
        self, client: TopicClient, file: MirrorFile, reader: MirrorReader, path: Path
    ) -> None:
        self.is_over = False
        """Set when the handle is closed: a scan that is at it ends."""
        self._path = path
        self._client = client
        self._file = file
        self._reader = reader
        self._topic: TopicReader = client.open_reader(committed=False)
        self._pending: dict[int, list[SentRecord]] = {}
        self._ends: dict[int, int] = {}
        """For each partition that has pending records: the offset up to which it was scanned."""

    def attempts_above(self, session_id: str, part: int, deadline: float) -> int:
        """Scan to the partition's present end; the highest attempt above the mirror's position.

        What lies below is in the mirror then. Raises `LogUnavailableError` at the deadline.
        """
        with faults_as_ours():
            end = self._end_of(part, deadline)
            self._settle(part, deadline)
            highest = _highest(self._pending.get(part, ()), session_id)
            at, remembers = self._scanned(part), True
            while at < end:
                if time.monotonic() >= deadline:
                    raise self._late(part, at, end)
                records, at = self._fetch(part, at, deadline)
                sent = [_sent(record) for record in records]
                if remembers:
                    remembers = self._note(part, sent, at)
                    self._settle(part, deadline)
                position = self._reader.positions()[part].next
                above = [each for each in sent if each.offset >= position]
                highest = max(highest, _highest(above, session_id))
            return highest

    def close(self) -> None:
        """Let go of connections."""
        self._topic.close()

    def _end_of(self, part: int, deadline: float) -> int:
        while True:
            left_s = max(_LEAST_S, deadline - time.monotonic())
            try:
                return self._topic.high_watermarks([part], left_s)[part]
            except BrokersUnavailable:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(_RETRY_S)

    def _scanned(self, part: int) -> int:
        return max(self._ends.get(part, 0), self._reader.positions()[part].scanned)

    def _fetch(self, part: int, at: int, deadline: float) -> tuple[list[TopicRecord], int]:
        if self.is_over:
            raise handle_closed(self._path)
        topic = self._topic
        if topic.positions() != {part: at}:
            topic.seek({part: at})
        try:
            records = topic.fetch(min(_FETCH_S, max(_LEAST_S, deadline - time.monotonic())))
        except BrokersUnavailable:
            time.sleep(_RETRY_S)
            return [], at
        except OffsetOutOfRange as out:
            # What is gone was read by nobody: the mirror itself says whether that may be.
            topic.seek({})
            time.sleep(_RETRY_S)
            return [], max(at, out.start)
        return records, topic.positions()[part]

    def _note(self, part: int, sent: list[SentRecord], at: int) -> bool:
        """Remember what was scanned; False where it is too much: then it is read again later."""
        pending = self._pending.setdefault(part, [])
        # An interrupt may have come between this and the next line: then these come once more.
        last = pending[-1].offset if pending else -1
        pending += [each for each in sent if each.offset > last]
        self._ends[part] = at
        if len(pending) > PENDING_MAX:
            self._forget(part)
            return False
        return True

    def _forget(self, part: int) -> None:
        self._pending.pop(part, None)
        self._ends.pop(part, None)

    def _settle(self, part: int, deadline: float) -> None:
        """Keep as aborted what was scanned, is not committed, and lies below the position."""
        position = self._reader.positions()[part]
        end = min(position.next, self._ends.get(part, 0))
        if end <= position.scanned:
            return
        pending = self._pending[part]
        is_committed = self._committed(part, position.scanned, end)
        # What lies below was settled by another mirror on this file.
        aborted = [
            each
            for each in pending
            if position.scanned <= each.offset < end
            and each.session_id
            and not is_committed(each.offset)
        ]
        with self._file.transaction(deadline) as (store, _):
            now = store.positions[part]
            if now.scanned != position.scanned:
                self._forget(part)  # another mirror on this file scanned meanwhile
                return
            rows = [
                Aborted(part, each.offset, now.aborted + number, *each[1:])
                for number, each in enumerate(aborted)
            ]
            store.put_aborted(part, end, rows)
        self._pending[part] = [each for each in pending if each.offset >= end]

    def _committed(self, part: int, start: int, end: int) -> "_Committed":
        rows = PartitionRows(self._reader.moment, part)
        ranges = [(span.offset, span.offset + span.length) for span in rows.spans(start, end)]
        return _Committed(ranges, {each.offset for each in rows.skipped(start, end)})

    def _late(self, part: int, at: int, end: int) -> LogUnavailableError:
        return LogUnavailableError(
            f"partition {part} of topic {self._client.topic!r} is scanned for attempts up to "
            f"offset {at} of {end} at the deadline",
            hint="try again: what was scanned is not scanned again",
        )


class _Committed:
    """The committed offsets of a range."""

    def __init__(self, ranges: list[tuple[int, int]], single: set[int]) -> None:
        self._starts = [start for start, _ in ranges]
        self._ranges = ranges
        self._single = single

    def __call__(self, offset: int) -> bool:
        index = bisect_right(self._starts, offset) - 1
        return offset in self._single or (index >= 0 and offset < self._ranges[index][1])


def _highest(sent: Iterable[SentRecord], session_id: str) -> int:
    return max((each.attempt for each in sent if each.session_id == session_id), default=0)


def _sent(record: TopicRecord) -> SentRecord:
    key, value = record.key, record.value
    if key is not None and value is not None:
        try:
            prefix = decode_prefix(value)
        except EventCorruptError:
            return SentRecord(record.offset, "", 0, 0, "")
        # One beyond the bounds never stands, for no reader: it leaves the next attempts free.
        if prefix.session_id.encode("utf-8") == key and bounds_problem(prefix) is None:
            return SentRecord(
                record.offset, prefix.session_id, prefix.step, prefix.attempt, prefix.kind
            )
    return SentRecord(record.offset, "", 0, 0, "")
