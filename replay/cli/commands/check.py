"""`steplog check`: is what is stored still what was recorded?"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated

import typer

from eventlog.errors import IntegrityError
from replay.cli.opened import opened
from replay.cli.output import Output
from replay.integrity import (
    DAMAGED,
    EXIT_CODE_OF_VERDICT,
    LOG_ITSELF,
    OK,
    VERDICTS,
    CheckReport,
    Expectation,
)
from replay.views import report_row
from replay.workspace import Workspace

app = typer.Typer(add_completion=False, rich_markup_mode=None)

COLUMNS = {
    "SESSION": lambda one: str(one["session"]),
    "VERDICT": lambda one: str(one["verdict"]),
    "EVENTS": lambda one: str(one["events"]),
    "DUPLICATES": lambda one: str(one["duplicates"]),
    "LOST CLAIMS": lambda one: str(one["lost_claims"]),
    "SUPERSEDED": lambda one: str(one["superseded"]),
    "CONFLICTS": lambda one: str(one["conflicts"]),
    "FIRST BAD": lambda one: "-" if one["first_bad"] is None else str(one["first_bad"]),
}

MINOR = ("DUPLICATES", "LOST CLAIMS", "SUPERSEDED", "CONFLICTS", "EVENTS")


@app.command()
def check(
    context: typer.Context,
    sessions: Annotated[
        list[str] | None, typer.Argument(metavar="SESSION", help="These; all without any.")
    ] = None,
    expect: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SESSION@STEP:DIGEST",
            help="What a receipt says: the event digest (hex) at a step; may be repeated.",
        ),
    ] = None,
    bad: Annotated[bool, typer.Option("--bad", help="Print only those that are not ok.")] = False,
) -> None:
    """Re-hash, re-judge and re-fold what is stored.

    Every event is re-hashed and its link checked, every session is judged anew by the reader's
    rule and folded from its seed with each recorded digest compared, every blob re-hashed. What is
    wrong is told on stderr. The worst verdict decides the exit code: ok 0; incomplete 6; conflicts,
    stopped and damaged 4.

    Damage that belongs to no one session stands under "(log)". How many had which verdict is told
    at the end.

    JSON keys: session, verdict, events, duplicates, lost_claims, superseded, conflicts, first_bad.
    """
    output = Output.of(context)
    found: Counter[str] = Counter()  # sessions, by verdict; the log itself under its own name
    with opened(context) as ws:
        expected = tuple(_expectation(text) for text in expect or ())
        named = None
        if sessions:
            named = [*dict.fromkeys([*sessions, *(one.session for one in expected)])]
        total = _session_count(ws) if named is None else len(named)
        with output.progress("checking", total) as advance:
            reports = _told(output, _reports(ws, named, expected), found, advance)
            shown = (report for report in reports if not (bad and report.verdict == OK))
            output.print_records(map(report_row, shown), COLUMNS, minor=MINOR)
    if not output.as_json:
        output.note(_summary(found))
    verdicts = {DAMAGED if each == LOG_ITSELF else each for each in found}
    worst = max(verdicts, key=VERDICTS.index, default=OK)
    if worst != OK:
        raise typer.Exit(EXIT_CODE_OF_VERDICT[worst])


def _expectation(text: str) -> Expectation:
    found = re.fullmatch(r"(.+)@([0-9]+):([0-9a-fA-F]{64})", text, re.DOTALL)
    if found is None:
        raise typer.BadParameter(f"write SESSION@STEP:DIGEST with 64 hex digits, not {text!r}")
    return Expectation(found[1], int(found[2]), bytes.fromhex(found[3]))


def _session_count(ws: Workspace) -> int | None:
    """How many sessions a check of all goes through; None where they cannot even be listed."""
    try:
        return sum(1 for _ in ws.sessions())
    except IntegrityError:
        return None


def _reports(
    ws: Workspace, named: Sequence[str] | None, expected: tuple[Expectation, ...]
) -> Iterator[CheckReport]:
    if named is None:
        yield from ws.check(expect=expected)
        return
    for name in named:
        yield from ws.check(name, expect=tuple(one for one in expected if one.session == name))


def _summary(found: Counter[str]) -> str:
    """How many were checked, and how many of each verdict: "294 sessions, 294 ok"."""
    total = found.total() - found[LOG_ITSELF]
    told = [f"{total} session{'' if total == 1 else 's'}"]
    told += [f"{found[each]} {each}" for each in VERDICTS if found[each]]
    return ", ".join(told + (["the log itself damaged"] if found[LOG_ITSELF] else []))


def _told(
    output: Output,
    reports: Iterator[CheckReport],
    found: Counter[str],
    advance: Callable[[int], None],
) -> Iterator[CheckReport]:
    """The same reports; each verdict is counted, and what is wrong told on stderr."""
    for report in reports:
        found[LOG_ITSELF if report.session == LOG_ITSELF else report.verdict] += 1
        tell = output.note if report.verdict == OK else output.problem
        for detail in report.details:
            tell(f"{report.session}: {detail}")
        advance(1)
        yield report
