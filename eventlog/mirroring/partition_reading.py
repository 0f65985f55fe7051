"""`PartitionRows`: the records of one partition in the order of its offsets, none left out."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from heapq import merge
from operator import attrgetter
from sqlite3 import Connection
from typing import Final

from eventlog.errors import EventCorruptError
from eventlog.keeping.kept_records import checked_record
from eventlog.log import LogRecord
from eventlog.mirroring.rows import (
    UNREADABLE,
    Skipped,
    Span,
    last_skipped,
    last_span,
    read_positions,
    skipped_at,
    skipped_record,
    span_events,
    spans_at,
)
from eventlog.sqlite.rows import SqliteRows
from eventlog.sqlite.seal import damaged

_SPANS_PAGE: Final = 256
_NAMES_MAX: Final = 100_000


class PartitionRows:
    """Reads one partition by pages. `moment` gives a connection whose answers are of one moment.

    Rows are counted through; one that is missing raises `EventCorruptError` where it should be.
    """

    def __init__(self, moment: Callable[[], AbstractContextManager[Connection]], part: int) -> None:
        self._moment = moment
        self._part = part
        self._names: dict[int, str] = {}

    def records(self, start: int, end: int) -> Iterator[LogRecord]:
        """Every committed record that is an event, at offsets [start, end) of the partition."""
        skipped = (
            skipped_record(each) for each in self.skipped(start, end) if each.verdict != UNREADABLE
        )
        return merge(self._accepted(start, end), skipped, key=attrgetter("offset"))

    def spans(self, start: int, end: int) -> Iterator[Span]:
        """The spans of accepted records, clipped to offsets [start, end)."""
        with self._moment() as db:
            first = last_span(db, self._part, start)
        before = 0
        if first is not None:
            before = first.before + first.length
            if start < first.offset + first.length:
                yield _clipped(first, start, end)
        at = start
        while at < end:
            with self._moment() as db:
                page = spans_at(db, self._part, at, _SPANS_PAGE)
                total = read_positions(db)[self._part].accepted if not page else before
            for span in page:
                if span.before != before:
                    raise self._lost("accepted", at)
                if span.offset >= end:
                    return
                yield _clipped(span, start, end)
                before += span.length
                at = span.offset + 1
            if not page:
                if total != before:
                    raise self._lost("accepted", at)
                return

    def skipped(self, start: int, end: int) -> Iterator[Skipped]:
        """The records that were not accepted, at offsets [start, end)."""
        with self._moment() as db:
            first = last_skipped(db, self._part, start)
        number = 0 if first is None else first.number + 1
        at = start
        while at < end:
            with self._moment() as db:
                page = skipped_at(db, self._part, at)
                total = read_positions(db)[self._part].skipped if not page else number
            for each in page:
                if each.number != number:
                    raise self._lost("skipped", at)
                if each.offset >= end:
                    return
                yield each
                number += 1
                at = each.offset + 1
            if not page:
                if total != number:
                    raise self._lost("skipped", at)
                return

    def _accepted(self, start: int, end: int) -> Iterator[LogRecord]:
        for span in self.spans(start, end):
            local, local_end = span.first, span.first + span.length
            while local < local_end:
                with self._moment() as db:
                    page = span_events(db, local, local_end)
                    self._name_sessions(db, {number for number, _ in page})
                for number, stored in page:
                    record = checked_record(stored, self._names[number])
                    offset = span.offset + stored.offset - span.first
                    yield record._replace(offset=offset, partition=self._part)
                local += len(page)

    def _name_sessions(self, db: Connection, numbers: set[int]) -> None:
        if len(self._names) > _NAMES_MAX:
            self._names.clear()
        for number in numbers - self._names.keys():
            name = SqliteRows(db).session_of_number(number)
            if name is None:
                raise damaged(f"events of session number {number} have no head row")
            self._names[number] = name

    def _lost(self, what: str, at: int) -> EventCorruptError:
        return damaged(f"rows of {what} records of partition {self._part} are missing after {at}")


def _clipped(span: Span, start: int, end: int) -> Span:
    low, high = max(span.offset, start), min(span.offset + span.length, end)
    return span._replace(first=span.first + low - span.offset, offset=low, length=high - low)
