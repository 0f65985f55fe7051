"""The tables of `log.db`, format 1, and what tells one kind of our SQLite files from another.

`events` is the log: `offset` counts from 0 without holes. `session` in events, marks and blob
references is the number of a row of `head`; `claims` names the session by id, so that a lost head
row shows. `seal` is a checksum over the row (`sqlite_seal.seal_of`): a row that was not written by
us is not believed. `log_end` has one row: how many events, sessions and cursors there are, without
which lost last rows would not show.

A listing reads and checks every row of `head`, whatever it filters by, so no column of it has an
index but the id.

Large tables keep to the order in which they are written (rowid order); the only index on `events`
is by place: a digest is looked up by its place, since an index in the order of digests would touch
a random page for each event.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

FORMAT: Final = 1
PAGE_BYTES: Final = 16_384
APPLICATION_ID: Final = 0x53746C67  # "Stlg", shown by file(1).

TABLES: Final = {
    "events": """CREATE TABLE events(
    offset INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    step INTEGER NOT NULL,
    digest BLOB NOT NULL,
    data BLOB NOT NULL)""",
    "events_by_place": "CREATE UNIQUE INDEX events_by_place ON events(session, attempt, step)",
    "head": """CREATE TABLE head(
    number INTEGER PRIMARY KEY,
    session TEXT NOT NULL UNIQUE,
    step_count INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    digest BLOB NOT NULL,
    writer TEXT,
    first_step INTEGER NOT NULL,
    parent_session TEXT,
    fork_parent BLOB NOT NULL,
    closed TEXT,
    lost TEXT,
    released INTEGER NOT NULL,
    released_to TEXT,
    accepted INTEGER NOT NULL,
    last_offset INTEGER NOT NULL,
    status TEXT NOT NULL,
    environment TEXT NOT NULL,
    task_id TEXT NOT NULL,
    sample_id TEXT,
    group_id TEXT,
    policy TEXT,
    reducer TEXT NOT NULL,
    reducer_version TEXT NOT NULL,
    state_coverage TEXT NOT NULL,
    reward REAL,
    reward_bits BLOB,
    reward_from TEXT,
    first_time INTEGER NOT NULL,
    last_time INTEGER NOT NULL,
    summary BLOB NOT NULL,
    seal INTEGER NOT NULL)""",
    "claims": """CREATE TABLE claims(
    session TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    first_step INTEGER NOT NULL,
    parent_attempt INTEGER NOT NULL,
    seal INTEGER NOT NULL,
    PRIMARY KEY(session, attempt)) WITHOUT ROWID""",
    "marks": """CREATE TABLE marks(
    session INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    step INTEGER NOT NULL,
    summary BLOB NOT NULL,
    seal INTEGER NOT NULL,
    PRIMARY KEY(session, attempt, step)) WITHOUT ROWID""",
    "blob_refs": """CREATE TABLE blob_refs(
    session INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    step INTEGER NOT NULL,
    blob BLOB NOT NULL,
    PRIMARY KEY(session, attempt, step, blob)) WITHOUT ROWID""",
    "cursors": """CREATE TABLE cursors(
    consumer TEXT NOT NULL,
    part INTEGER NOT NULL,
    next INTEGER NOT NULL,
    seal INTEGER NOT NULL,
    PRIMARY KEY(consumer, part)) WITHOUT ROWID""",
    "log_end": """CREATE TABLE log_end(
    id INTEGER PRIMARY KEY,
    format INTEGER NOT NULL,
    events INTEGER NOT NULL,
    sessions INTEGER NOT NULL,
    cursors INTEGER NOT NULL,
    seal INTEGER NOT NULL)""",
}
"""Name -> the exact text that `sqlite_master` must hold; another text is damage or not ours."""


class FileForm(NamedTuple):
    """A kind of file of ours: its exact tables, its format, and how it is spoken of.

    `synchronous`: SQLite's setting for its writer. `is_copy`: all that is in it can be had again
    from elsewhere, so a file that is gone may be begun anew. `mend` is the hint for a damaged one.
    """

    what: str
    tables: Mapping[str, str]
    format: int
    application_id: int
    synchronous: str
    is_copy: bool
    mend: str


LOG_FORM: Final = FileForm(
    "log",
    TABLES,
    FORMAT,
    APPLICATION_ID,
    "FULL",
    is_copy=False,
    mend="run `steplog check`; restore the file from a copy",
)

MIRROR_MARK: Final = "positions"
"""A table that only the mirror of a topic has: such a file is no log to append to."""
