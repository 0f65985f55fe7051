"""`steplog tail`: the last events of the whole log, and those that come."""

import time
from collections.abc import Iterator
from typing import Annotated, Final

import typer

from eventlog.codec import decode_event
from eventlog.cut import Cut
from eventlog.keeping.kept_rows import PARTITION
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

    They come in log order. Every event is told, also those that a claim superseded.

    JSON: events as of `show`.
    """
    if stop_after is not None and not follow:
        raise typer.BadParameter("--for goes with --follow")
    seconds = None if stop_after is None else parse_duration(stop_after) / 1e6
    output = Output.of(context)
    with opened(context) as ws:
        end = ws.log.end_cut().end(PARTITION)
        start = Cut({PARTITION: max(0, end - lines)})
        if follow:
            output.print_as_they_come(
                _rows(ws, output, _arrivals(ws.log, start, seconds)), EVENT_COLUMNS
            )
        else:
            output.print_records(
                _rows(ws, output, ws.log.tail_events(start)), EVENT_COLUMNS, minor=EVENT_MINOR
            )


def _rows(ws: Workspace, output: Output, records: Iterator[LogRecord]) -> Iterator[Record]:
    row_of = event_row if output.as_json else event_cells
    return (row_of(record, decode_event(record.data), ws.read_content) for record in records)


def _arrivals(log: EventLog, cut: Cut, seconds: float | None) -> Iterator[LogRecord]:
    """What is in the log from `cut` on, then what comes, looked for every `POLL_S`."""
    deadline = None if seconds is None else time.monotonic() + seconds
    while True:
        for record in log.tail_events(cut):
            yield record
            cut = cut.including(PARTITION, record.offset)
        wait_s = POLL_S if deadline is None else min(POLL_S, deadline - time.monotonic())
        if wait_s <= 0:
            return
        time.sleep(wait_s)
