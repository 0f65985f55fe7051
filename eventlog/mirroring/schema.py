"""The tables of `mirror.db`, format 1: those of `log.db`, and where each record came from.

The tables of `log.db` hold the accepted records alone, so every reader of a log reads a mirror too;
`events.offset` is a local number without holes, and `spans` says which offsets of the topic a run
of them had. `skipped` keeps every other committed record, with what the rule said of it.

What is missing must show: the rows of a partition in `spans`, `skipped` and `aborted` are counted
through (`before`, `number`), and `positions` holds the totals; `source` has the totals of the rest.

`headless` holds sessions of which nothing was ever accepted; `orphans` branches whose parent's
events have not been read yet. `aborted` are records that were sent and never committed, as far as
a partition was scanned for them.
"""

from typing import Final

from eventlog.sqlite.schema import TABLES, FileForm

MIRROR_FORMAT: Final = 1
APPLICATION_ID: Final = 0x53746C6D  # "Stlm", shown by file(1).

OWN_TABLES: Final = {
    "spans": """CREATE TABLE spans(
    first INTEGER PRIMARY KEY,
    part INTEGER NOT NULL,
    offset INTEGER NOT NULL,
    length INTEGER NOT NULL,
    before INTEGER NOT NULL,
    seal INTEGER NOT NULL)""",
    "spans_by_place": "CREATE UNIQUE INDEX spans_by_place ON spans(part, offset)",
    "skipped": """CREATE TABLE skipped(
    part INTEGER NOT NULL,
    offset INTEGER NOT NULL,
    number INTEGER NOT NULL,
    session TEXT,
    step INTEGER,
    attempt INTEGER,
    kind TEXT,
    verdict TEXT NOT NULL,
    detail TEXT NOT NULL,
    digest BLOB NOT NULL,
    data BLOB,
    seal INTEGER NOT NULL,
    PRIMARY KEY(part, offset)) WITHOUT ROWID""",
    "skipped_by_session": "CREATE INDEX skipped_by_session ON skipped(session, offset)",
    "aborted": """CREATE TABLE aborted(
    part INTEGER NOT NULL,
    offset INTEGER NOT NULL,
    number INTEGER NOT NULL,
    session TEXT NOT NULL,
    step INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    kind TEXT NOT NULL,
    seal INTEGER NOT NULL,
    PRIMARY KEY(part, offset)) WITHOUT ROWID""",
    "headless": """CREATE TABLE headless(
    session TEXT PRIMARY KEY,
    part INTEGER NOT NULL,
    line BLOB NOT NULL,
    seal INTEGER NOT NULL) WITHOUT ROWID""",
    "orphans": """CREATE TABLE orphans(
    waits_for TEXT NOT NULL,
    session TEXT NOT NULL,
    seal INTEGER NOT NULL,
    PRIMARY KEY(waits_for, session)) WITHOUT ROWID""",
    "positions": """CREATE TABLE positions(
    part INTEGER PRIMARY KEY,
    next INTEGER NOT NULL,
    accepted INTEGER NOT NULL,
    skipped INTEGER NOT NULL,
    lost INTEGER NOT NULL,
    scanned INTEGER NOT NULL,
    aborted INTEGER NOT NULL,
    seal INTEGER NOT NULL)""",
    "source": """CREATE TABLE source(
    id INTEGER PRIMARY KEY,
    topic TEXT NOT NULL,
    topic_id TEXT NOT NULL,
    partition_count INTEGER NOT NULL,
    headless INTEGER NOT NULL,
    orphans INTEGER NOT NULL,
    seal INTEGER NOT NULL)""",
}

MIRROR_FORM: Final = FileForm(
    "mirror",
    {**TABLES, **OWN_TABLES},
    MIRROR_FORMAT,
    APPLICATION_ID,
    # The topic is the truth: commits that a power failure takes are read again.
    "NORMAL",
    is_copy=True,
    mend="remove it: the topic is mirrored again",
)
