"""Finding damage in `log.db`: the file as SQLite sees it, the log as a whole, then each session."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from eventlog.errors import SteplogError
from eventlog.event import session_id_problem
from eventlog.keeping.kept_rows import KeptSession
from eventlog.keeping.line_checking import check_session, finding_of
from eventlog.log import Finding
from eventlog.sqlite.head import checked_head, kept_of
from eventlog.sqlite.log_end import read_cuts
from eventlog.sqlite.reader import SqliteReader
from eventlog.sqlite.rows import SqliteRows

_FINDINGS_MAX: Final = 100
"""Problems of one kind, or of one session, that are listed one by one."""


def find_log_damage(
    reader: SqliteReader, path: Path, session_ids: Sequence[str] | None
) -> Iterator[Finding]:
    """Everything wrong in these sessions, or in the whole log. Damage is never raised."""
    if session_ids is not None:
        for session_id in session_ids:
            yield from _session_findings(reader, session_id)
        return
    yield from _file_findings(reader, path)
    yield from _whole_findings(reader)
    yield from _lost_findings(reader)
    try:
        for page in reader.head_pages():
            for row in page:
                yield from _row_findings(reader, row)
    except SteplogError as error:
        yield finding_of(error)


def _row_findings(reader: SqliteReader, row: tuple[Any, ...]) -> Iterator[Finding]:
    try:
        kept = kept_of(checked_head(row))
    except SteplogError as error:
        yield finding_of(error)
        return
    yield from _findings_of(reader, kept)


def _findings_of(reader: SqliteReader, kept: KeptSession) -> Iterator[Finding]:
    """The session's first findings; where there are more, the last one says so."""
    try:
        for number, finding in enumerate(check_session(reader, kept)):
            if number >= _FINDINGS_MAX:
                what = f"and more: the first {_FINDINGS_MAX} findings are shown"
                yield Finding(kept.session_id, None, None, "EventCorruptError", what)
                return
            yield finding
    except SteplogError as error:
        yield finding_of(error)._replace(session_id=kept.session_id)


def _session_findings(reader: SqliteReader, session_id: str) -> Iterator[Finding]:
    try:
        kept = reader.require_session(session_id)
    except SteplogError as error:
        if error.exit_code == 5:
            raise
        yield finding_of(error)._replace(session_id=session_id)
        return
    yield from _findings_of(reader, kept)


def _file_findings(reader: SqliteReader, path: Path) -> Iterator[Finding]:
    """What SQLite's own check finds: pages, indexes, orders."""
    try:
        with reader.connection() as db:
            rows = db.execute(f"PRAGMA integrity_check({_FINDINGS_MAX})").fetchall()
    except SteplogError as error:
        yield finding_of(error)
        return
    for (problem,) in rows:
        if problem != "ok":
            yield Finding(None, None, None, "EventCorruptError", f"{path}: {problem}")


_WHOLE: Final = (
    (
        "SELECT count(*) - max(offset) - 1 FROM events HAVING count(*) > 0",
        "offsets are missing among the events",
    ),
    ("SELECT min(offset) FROM events", "the first event is not at offset 0"),
    (
        "SELECT max(number) - count(*) FROM head HAVING count(*) > 0",
        "head rows are missing among the sessions",
    ),
    (
        "SELECT coalesce(max(number), 0) - (SELECT sessions FROM log_end) FROM head",
        "the number of sessions is not what the log's end says",
    ),
)


def _whole_findings(reader: SqliteReader) -> Iterator[Finding]:
    """What can be seen only over all rows: holes, and rows that belong to nothing."""
    try:
        reader.log_end()
        with reader.connection() as db:
            counts = [(db.execute(query).fetchone(), what) for query, what in _WHOLE]
            read_cuts(db)
    except SteplogError as error:
        yield finding_of(error)
        return
    for row, what in counts:
        if row is not None and row[0]:
            yield Finding(None, None, None, "StepGapError", f"{what} ({abs(row[0])})")


def _lost_findings(reader: SqliteReader) -> Iterator[Finding]:
    """Sessions without a head row, by the names that their events and claims have for them."""
    try:
        with reader.connection() as db:
            rows = SqliteRows(db)
            numbers = db.execute(_WITHOUT_HEAD).fetchmany(_FINDINGS_MAX)
            records = [(number, rows.first_record(number)) for (number,) in numbers]
            claimed = [name for (name,) in db.execute(_CLAIMED).fetchmany(_FINDINGS_MAX)]
    except SteplogError as error:
        yield finding_of(error)
        return
    named = set()
    for number, record in records:
        what = f"session number {number} has events but no head row"
        if record is None:
            yield Finding(None, None, None, "StepGapError", what)
            continue
        name = record.prefix.session_id
        named.add(name)
        yield Finding(name, record.prefix.step, record.offset, "StepGapError", what)
    for name in claimed:
        usable = type(name) is str and session_id_problem(name) is None
        if usable and name not in named:
            yield Finding(
                name, None, None, "StepGapError", "the session has claims but no head row"
            )


_WITHOUT_HEAD: Final = (
    "SELECT number FROM (SELECT DISTINCT session AS number FROM events) "
    "WHERE number NOT IN (SELECT number FROM head) ORDER BY number"
)
_CLAIMED: Final = (
    "SELECT DISTINCT session FROM claims WHERE session NOT IN (SELECT session FROM head)"
)
