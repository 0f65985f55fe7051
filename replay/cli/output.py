"""How answers are printed: JSON with `--json`, tables on a terminal, tab-separated text in a pipe.

Data goes to stdout; notes and progress go to stderr. Recorded text is shown with its control
characters escaped, so that no tool's answer can drive the reader's terminal. rich is loaded only
where a table or a progress bar is really drawn.
"""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import islice
from typing import Final

import typer

from replay.cli.invocation import Invocation

TABLE_ROWS_MAX: Final = 500
"""Rows drawn as one table: a longer list is drawn in parts, so that it appears as it is read."""

NOTHING: Final = "-"

Record = Mapping[str, object]
"""One answer, as `--json` prints it: stable keys, and values that JSON has."""

Columns = Mapping[str, Callable[[Record], str]]
"""A table's columns: for each heading, the text of a record's cell."""


class Output:
    """Where one run of the command prints."""

    def __init__(self, invocation: Invocation) -> None:
        self._invocation = invocation

    @classmethod
    def of(cls, context: typer.Context) -> "Output":
        """The output of the invocation that a verb was called in."""
        return cls(Invocation.of(context))

    @property
    def as_json(self) -> bool:
        """Whether the answer is wanted as JSON."""
        return self._invocation.as_json

    def print_json(self, record: Record) -> None:
        """One record as one line of strict JSON."""
        print(json.dumps(record, ensure_ascii=False, allow_nan=False, separators=(",", ":")))

    def print_records(
        self,
        records: Iterable[Record],
        columns: Columns,
        nothing: str = "",
        *,
        minor: Sequence[str] = (),
    ) -> int:
        """Print records as they come, as JSON lines or as a table; how many there were.

        Where there were none, a person is told `nothing`. `minor` names the columns that a narrow
        terminal can do without, the first to go first.
        """
        if self.as_json:
            return _count(map(self.print_json, records))
        rows = ([printable(cell(record)) for cell in columns.values()] for record in records)
        if sys.stdout.isatty():
            count = self._print_tables(list(columns), rows, minor)
        else:
            count = _print_lines(list(columns), rows)
        if nothing and not count:
            self.note(nothing)
        return count

    def _print_tables(
        self, headings: Sequence[str], rows: Iterator[Sequence[str]], minor: Sequence[str]
    ) -> int:
        from replay.cli.table import print_table

        count = 0
        left_out: dict[str, None] = {}
        while part := list(islice(rows, TABLE_ROWS_MAX)):
            left_out |= dict.fromkeys(print_table(headings, part, minor))
            count += len(part)
        if left_out:
            self.detail(f"no room for {', '.join(left_out)}: --json has all")
        return count

    def print_fields(self, fields: Mapping[str, str]) -> None:
        """Names and values, one a line and aligned: how one thing is shown to a person."""
        width = max(map(len, fields), default=0)
        for name, value in fields.items():
            print(f"{name:<{width}}  {printable(value)}")

    def print_as_they_come(self, records: Iterable[Record], columns: Columns) -> None:
        """As `print_records`, with each line out before the next record is asked for."""
        if self.as_json:
            for record in records:
                self.print_json(record)
                sys.stdout.flush()
            return
        rows = ([printable(cell(record)) for cell in columns.values()] for record in records)
        _print_lines(list(columns), rows, flush=True)

    def print_text(self, text: str) -> None:
        """One line of text, its control characters escaped."""
        print(printable(text))

    def problem(self, message: str, hint: str = "") -> None:
        """Something that failed while the rest goes on: on stderr, also with `--quiet`."""
        print(f"error: {printable(message)}", file=sys.stderr)
        if hint:
            print(f"  hint: {printable(hint)}", file=sys.stderr)

    def note(self, text: str) -> None:
        """A remark on stderr, unless `--quiet`."""
        if not self._invocation.quiet:
            print(printable(text), file=sys.stderr)

    def detail(self, text: str) -> None:
        """A remark on stderr that only `--verbose` asks for."""
        if self._invocation.verbose:
            print(printable(text), file=sys.stderr)

    @contextmanager
    def progress(
        self, label: str, total: int | None = None, *, shown: bool = True
    ) -> Iterator[Callable[[int], None]]:
        """A progress bar on stderr while the block runs; its value adds to what is done.

        Only on a terminal, without `--quiet` and where `shown`; elsewhere the value does nothing.
        `total` None: how much there is to do is not known.
        """
        # rich would break JSON lines that it prints above its bar at the terminal's width.
        is_json_seen = self.as_json and sys.stdout.isatty()
        if self._invocation.quiet or is_json_seen or not (shown and sys.stderr.isatty()):
            yield _ignore
            return
        from rich.console import Console
        from rich.progress import Progress

        # rich would print through its console, which is stderr, whatever is printed meanwhile: so
        # that data in a pipe stays on stdout, only where stdout is the terminal too.
        with Progress(
            console=Console(stderr=True), transient=True, redirect_stdout=sys.stdout.isatty()
        ) as bar:
            task = bar.add_task(label, total=total)
            yield lambda done: bar.advance(task, done)


def _ignore(done: int) -> None:
    del done


def _count(printed: Iterable[None]) -> int:
    return sum(1 for _ in printed)


def _print_lines(
    headings: Sequence[str], rows: Iterable[Sequence[str]], *, flush: bool = False
) -> int:
    count = 0
    for count, row in enumerate(rows, 1):
        if count == 1:
            print("\t".join(headings))
        print("\t".join(row), flush=flush)
    return count


def printable(text: str) -> str:
    """`text` on one line, control characters and line ends escaped as in Python."""
    return "".join(
        char if char.isprintable() or char == "\u00a0" else char.encode("unicode_escape").decode()
        for char in text
    )


def shortened(text: str, chars_max: int = 60) -> str:
    """`text`, or its beginning and an ellipsis."""
    return text if len(text) <= chars_max else text[: chars_max - 1] + "\u2026"


def time_text(time_us: object) -> str:
    """Microseconds since 1970 as UTC to the second; `-` for none (imported traces may have 0)."""
    if not isinstance(time_us, int) or not time_us:
        return NOTHING
    return f"{datetime.fromtimestamp(time_us // 1_000_000, UTC):%Y-%m-%d %H:%M:%S}"


def duration_text(duration_us: int | None) -> str:
    """A duration with the unit that suits it."""
    if duration_us is None:
        return NOTHING
    if duration_us < 1_000:
        return f"{duration_us} us"
    return (
        f"{duration_us / 1e3:.1f} ms" if duration_us < 1_000_000 else f"{duration_us / 1e6:.1f} s"
    )


def number_text(value: object) -> str:
    """A row's number in its shortest form; `-` for none."""
    if isinstance(value, Mapping):  # as `json_number` names what JSON has no number for
        return str(value["$float"])
    return NOTHING if value is None else f"{value:g}"
