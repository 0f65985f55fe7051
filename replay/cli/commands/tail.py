"""`steplog tail`: the last events of the whole log, and those that come."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from heapq import merge
from itertools import chain
from operator import itemgetter
from typing import Annotated, Final

import typer

from eventlog.codec import decode_event
from eventlog.cut import Cut
from eventlog.errors import LogUnavailableError
from eventlog.log import EventLog, LogRecord
from replay.cli.event_lines import EVENT_COLUMNS, EVENT_MINOR, event_cells
from replay.cli.opened import opened
from replay.cli.output import Output, Record
from replay.cli.times import parse_duration
from replay.views import event_row
from replay.workspace import Workspace

app = typer.Typer(add_completion=False, rich_markup_mode=None)

POLL_S: Final = 0.25
"""How long to wait before looking for new events again."""


@app.command()
def tail(
    context: typer.Context,
    lines: Annotated[
        int, typer.Option("--lines", "-n", min=0, help="How many of the last events.")
    ] = 10,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Then print events as they come.")
    ] = False,
    stop_after: Annotated[
        str | None,
        typer.Option(
            "--for", metavar="DURATION", help="Follow for so long: 90s, 15m; else until Ctrl-C."
        ),
    ] = None,
) -> None:
    """Print the last events of the whole log, and follow it.

    They come in log order; those of several partitions by time. Every event is told, also those
    that a claim superseded. While the log cannot be reached, following waits, and says so once on
    stderr.

    JSON: events as of `show`.
    """
    if stop_after is not None and not follow:
        raise typer.BadParameter("--for goes with --follow")
    seconds = None if stop_after is None else parse_duration(stop_after) / 1e6
    output = Output.of(context)
    with opened(context) as ws:
        last, end = last_records(ws.log, lines)
        if follow:
            arrivals = chain(last, arrivals_from(ws.log, end, seconds, output.note))
            output.print_as_they_come(_rows(ws, output, arrivals), EVENT_COLUMNS)
        else:
            output.print_records(_rows(ws, output, iter(last)), EVENT_COLUMNS, minor=EVENT_MINOR)


def _rows(ws: Workspace, output: Output, records: Iterator[LogRecord]) -> Iterator[Record]:
    row_of = event_row if output.as_json else event_cells
    return (row_of(record, decode_event(record.data), ws.read_content) for record in records)


def last_records(log: EventLog, count: int) -> tuple[list[LogRecord], Cut]:
    """The last records of the whole log, and the cut after them.

    Between partitions there is no order: their records are laid together by time, and those of one
    partition stay in its order.
    """
    end = log.end_cut()
    found = [_last_of(log, end, partition, count) for partition in end.partitions()]
    if len(found) == 1:
        return found[0], end
    merged = merge(*map(_timed, found), key=itemgetter(0))
    return [record for _, record in deque(merged, maxlen=count)], end


def _last_of(log: EventLog, end: Cut, partition: int, count: int) -> list[LogRecord]:
    """The last `count` records of one partition, below `end`."""
    span = count
    while True:
        first = max(0, end.end(partition) - span)
        start = Cut(end.as_dict() | {partition: first})
        # What came meanwhile is left for who follows from `end`.
        found = [record for record in log.tail_events(start) if end.holds(*_place(record))]
        if len(found) >= count or not first:
            return found[max(0, len(found) - count) :]
        span *= 4  # Offsets in Kafka have holes.


def _place(record: LogRecord) -> tuple[int, int]:
    return record.partition, record.offset


def _timed(records: Iterable[LogRecord]) -> Iterator[tuple[int, LogRecord]]:
    """Each record with the latest time so far, so that clocks that went back change no order."""
    latest = -(2**63)
    for record in records:
        latest = max(latest, decode_event(record.data).time)
        yield latest, record


def arrivals_from(
    log: EventLog, cut: Cut, seconds: float | None, tell: Callable[[str], object]
) -> Iterator[LogRecord]:
    """What comes into the log from `cut` on, looked for every `POLL_S`, through any outage.

    `tell` is told once of each outage, and once of its end.
    """
    deadline = None if seconds is None else time.monotonic() + seconds
    is_away = False
    while True:
        try:
            for record in log.tail_events(cut):
                yield record
                cut = cut.including(*_place(record))
        except LogUnavailableError as error:
            if not is_away:
                tell(f"{error.message}; waiting until the log can be read again")
            is_away = True
        else:
            if is_away:
                tell("the log can be read again")
            is_away = False
        wait_s = POLL_S if deadline is None else min(POLL_S, deadline - time.monotonic())
        if wait_s <= 0:
            return
        time.sleep(wait_s)
