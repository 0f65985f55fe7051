"""`steplog mirror`: this machine's copy of a log in Kafka, brought up to date and kept so."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Final

import typer

from eventlog.errors import ConfigError, LogUnavailableError
from eventlog.kafka_log import KafkaLog
from eventlog.mirroring.following import follow_mirror
from replay.cli.exit_codes import ExitCode
from replay.cli.opened import opened
from replay.cli.output import Output

app = typer.Typer(add_completion=False, rich_markup_mode=None)

COLUMNS: Final = {
    "RECORDS": lambda one: str(one["records"]),
    "PARTITIONS": lambda one: str(len(one["end"])),
}


@app.command()
def mirror(
    context: typer.Context,
    once: Annotated[
        bool, typer.Option("--once", help="Up to the present end, no further.")
    ] = False,
) -> None:
    """Bring the local copy of a log in Kafka up to date.

    Reads do so by themselves; this does it beforehand, so that they have little left to do, and
    then follows the log until SIGTERM (exit code 0) or Ctrl-C (130), also while servers are away.
    It may be stopped or killed at any point. How far it has come is told on stderr.

    JSON keys: records, end.
    """
    output = Output.of(context)
    with opened(context) as ws, _signals() as stopped, output.progress("mirroring") as advance:
        log = ws.log
        if not isinstance(log, KafkaLog):
            raise ConfigError(
                "this workspace's log is not in Kafka: there is nothing to mirror",
                hint="name one that is: --workspace kafka://HOST:PORT/TOPIC",
            )
        told = _Teller(output, advance, gives_up=once)
        end = follow_mirror(log.mirror, once=once, stop=stopped.event, report=told.report)
    row = {"records": told.records, "end": end.as_names()}
    output.print_records([row], COLUMNS)
    if stopped.number == signal.SIGINT or (once and stopped.number is not None):
        raise typer.Exit(ExitCode.INTERRUPTED)


class _Teller:
    """Tells on stderr how far it has come, and once for each time something is in the way.

    Who gives up in the end is told then, by the error.
    """

    def __init__(self, output: Output, advance: Callable[[int], None], *, gives_up: bool) -> None:
        self.records = 0
        self._gives_up = gives_up
        self._output = output
        self._advance = advance
        self._is_new = True
        self._trouble = False

    def report(self, came: int, trouble: LogUnavailableError | None) -> None:
        """`mirroring.following.Report`."""
        self.records += came
        self._advance(came)
        if trouble is not None and not self._trouble and not self._gives_up:
            self._output.problem(trouble.message, trouble.hint)
        elif trouble is None and (self._trouble or (self._is_new and not came)):
            self._output.note(f"up to date, with {self.records} records more")
            self._is_new = False
        self._trouble = trouble is not None


class _Stopped:
    """Whether a signal came, and which."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self.number: int | None = None

    def note(self, number: int, _frame: Any) -> None:
        """What is done when a signal comes: what is under way is brought to its end."""
        self.number = number
        self.event.set()


@contextmanager
def _signals() -> Iterator[_Stopped]:
    stopped = _Stopped()
    before = {each: signal.signal(each, stopped.note) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
