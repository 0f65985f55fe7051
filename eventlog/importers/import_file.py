"""`import_file`: a foreign trace file into a log, one session per record, whole or absent.

Each record is told of by one `ImportOutcome`, in file order and as soon as it is durable. A record
that cannot be imported is told of with its line and byte offset, and stops no other. Importing is
idempotent: a session that is there already, from the same record, adds nothing.
"""

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from eventlog.blob_store import BlobStore
from eventlog.codec import decode_event
from eventlog.errors import (
    ConfigError,
    EventTooLargeError,
    ImportFormatError,
    SessionExistsError,
    SessionNotFoundError,
    ValueNotEncodableError,
)
from eventlog.event import SessionSeeded
from eventlog.importers import bfcl, chat, gym_rollouts, swe_agent
from eventlog.importers.gym_rollouts import RolloutInputs
from eventlog.importers.json_spans import JsonNode, parse_json
from eventlog.importers.record_file import (
    RECORD_BYTES_MAX,
    FileRecord,
    OversizeLine,
    read_document,
    read_records,
)
from eventlog.importers.session_draft import (
    RECORD_DIGEST_KEY,
    SessionDraft,
    encode_draft,
    session_id_of,
)
from eventlog.log import EventLog

GYM_ROLLOUTS: Final = "gym-rollouts"
FORMATS: Final = (GYM_ROLLOUTS, chat.FORMAT, bfcl.FORMAT, swe_agent.FORMAT)
AUTO: Final = "auto"

# More records than any one trace file holds; which are repeated is kept in memory.
RECORDS_MAX: Final = 1_000_000
# So many records are looked at for one of a known format.
DETECTED_RECORDS_MAX: Final = 100
# The task inputs of one file are held in memory to be paired.
INPUTS_BYTES_MAX: Final = 256 * 1024 * 1024

_ROLLOUTS_ENDING: Final = ".rollouts.jsonl"
_INPUTS_ENDING: Final = ".inputs.jsonl"
_TRAJECTORY_ENDING: Final = ".traj"


class ImportOutcome(NamedTuple):
    """What became of one record, or of a file that holds none.

    `session_id` None: nothing was imported here. Then `problem` says what is wrong with the record
    at `line` (from 1) and `byte_offset`, of `byte_count` bytes; `stump` marks a last line that was
    cut. A file without any record has no problem, only a warning. `events` counts those appended
    now: 0 where the session was there already. `state` is the session's state coverage.
    """

    session_id: str | None
    format: str | None
    events: int
    state: str | None
    warnings: tuple[str, ...]
    line: int | None = None
    byte_offset: int | None = None
    byte_count: int | None = None
    problem: str | None = None
    stump: bool = False

    @property
    def failed(self) -> bool:
        """Whether a record was there that could not be imported."""
        return self.problem is not None


def import_file(
    path: str | os.PathLike[str],
    log: EventLog,
    blobs: BlobStore,
    *,
    format: str = AUTO,
    inputs: str | os.PathLike[str] | None = None,
) -> Iterator[ImportOutcome]:
    """Import each record of `path` as one session; tells of each in turn.

    `format` is one of `FORMATS`, or `auto`: the first record that is of one decides. `inputs`
    names the task inputs of a rollouts file; by default the sibling `*.inputs.jsonl`, where there
    is one. Raises `ConfigError` for an unknown format, `ImportFormatError` for a file that cannot
    be read or holds no record of any format; and what the log and the blob store raise.
    """
    if format != AUTO and format not in FORMATS:
        raise ConfigError(
            f"no importer for format {format!r}", hint=f"use one of {', '.join(FORMATS)}, or auto"
        )
    place = Path(path)
    with _opened(place) as file:
        name = find_format(file, place.name) if format == AUTO else format
        if name is None:
            yield _outcome_of_nothing(file, place)
            return
        file.seek(0)
        paired = _find_inputs(place, inputs) if name == GYM_ROLLOUTS else None
        importer = _FileImport(name, place, paired, log, blobs)
        found = False
        for record in _records(file, name):
            found = True
            yield importer.import_record(record)
        if not found:
            yield _empty(place)


def find_format(file: BinaryIO, file_name: str) -> str | None:
    """The format of the first record that is of one; by the name where no record can be read.

    None for a file that holds records of no format, or nothing. Leaves `file` anywhere.
    """
    readable = False
    for record in islice(read_records(file), DETECTED_RECORDS_MAX):
        name, is_object = _looked_at(record)
        if name is not None:
            return name
        readable |= is_object
    file.seek(0)
    name, is_object = _looked_at(read_document(file))
    if name is None and not readable and not is_object:
        if file_name.endswith(_TRAJECTORY_ENDING):
            return swe_agent.FORMAT
        if file_name.endswith(_ROLLOUTS_ENDING):
            return GYM_ROLLOUTS
    return name


class _FileImport:
    """Imports the records of one file, and counts those that repeat."""

    def __init__(
        self,
        format_name: str,
        place: Path,
        inputs: RolloutInputs | None,
        log: EventLog,
        blobs: BlobStore,
    ) -> None:
        self._format = format_name
        self._stem = place.name.removesuffix(".jsonl").removesuffix(".rollouts")
        self._inputs = inputs
        self._log = log
        self._blobs = blobs
        self._seen: Counter[bytes] = Counter()

    def import_record(self, record: FileRecord | OversizeLine) -> ImportOutcome:
        """Append the record's session, unless it is there already."""
        if isinstance(record, OversizeLine):
            return self._failure(record, record.byte_count, f"over {RECORD_BYTES_MAX} bytes long")
        try:
            node = parse_json(record.data)
        except ImportFormatError as error:
            # Nothing ends this line, so it was cut in the writing: a stump.
            what = error.message if record.ended else f"cut off: {error.message}"
            return self._failure(record, len(record.data), what, stump=not record.ended)
        try:
            return self._append(record, self._draft_of(node))
        except (ImportFormatError, ValueNotEncodableError, EventTooLargeError) as error:
            return self._failure(record, len(record.data), error.message)

    def _draft_of(self, node: JsonNode) -> SessionDraft:
        if self._format == GYM_ROLLOUTS:
            return gym_rollouts.parse_rollout(node, self._stem, self._inputs)
        if self._format == chat.FORMAT:
            return chat.parse_chat(node)
        if self._format == bfcl.FORMAT:
            return bfcl.parse_bfcl(node)
        return swe_agent.parse_swe_agent(node)

    def _append(self, record: FileRecord, draft: SessionDraft) -> ImportOutcome:
        digest = sha256(record.data).digest()
        self._seen[digest] += 1
        session_id = session_id_of(self._format, draft.task, record.data, self._seen[digest])
        events = 0
        if not self._is_there(session_id, digest):
            batch = encode_draft(draft, session_id, record.data, self._blobs.put_blob)
            try:
                self._log.append_events(session_id, batch, expected_step=-1)
                events = len(batch)
            except SessionExistsError:
                # Another process imported it since; the same record is the same session.
                if not self._is_there(session_id, digest):
                    raise
        return ImportOutcome(
            session_id,
            self._format,
            events,
            draft.state,
            draft.warnings,
            record.line,
            record.offset,
            len(record.data),
        )

    def _is_there(self, session_id: str, digest: bytes) -> bool:
        """Whether the session is in the log. Raises where it stands for another record."""
        try:
            seed = next(self._log.read_session(session_id, 0, 1))
        except SessionNotFoundError:
            return False
        body = decode_event(seed.data).body
        if isinstance(body, SessionSeeded) and body.metadata.get(RECORD_DIGEST_KEY) == digest.hex():
            return True
        raise ImportFormatError(
            f"session {session_id!r} is in the log already and comes from another record",
            hint="import into another workspace",
        )

    def _failure(
        self, record: FileRecord | OversizeLine, byte_count: int, what: str, *, stump: bool = False
    ) -> ImportOutcome:
        return ImportOutcome(
            None,
            self._format,
            0,
            None,
            (),
            record.line,
            record.offset,
            byte_count,
            f"line {record.line}, byte offset {record.offset}: {what}",
            stump,
        )


def _records(file: BinaryIO, format_name: str) -> Iterator[FileRecord | OversizeLine]:
    if format_name == swe_agent.FORMAT:
        record = read_document(file)
        if record is not None:
            yield record
        return
    for count, line in enumerate(read_records(file)):
        if count == RECORDS_MAX:
            raise ImportFormatError(
                f"line {line.line}: the file holds more than {RECORDS_MAX} records",
                hint="split the file; what stands before this line is imported",
            )
        yield line


def _parsed(record: FileRecord | OversizeLine | None) -> JsonNode | None:
    if not isinstance(record, FileRecord):
        return None
    try:
        return parse_json(record.data)
    except ImportFormatError:
        return None


def _looked_at(record: FileRecord | OversizeLine | None) -> tuple[str | None, bool]:
    """The record's format, None for none; and whether it is an object that can be read at all."""
    node = _parsed(record)
    if node is None:
        return None, False
    return _format_of(node), node.is_object


def _format_of(record: JsonNode) -> str | None:
    if gym_rollouts.is_rollout(record):
        return GYM_ROLLOUTS
    if chat.is_chat(record):
        return chat.FORMAT
    if bfcl.is_bfcl(record):
        return bfcl.FORMAT
    return swe_agent.FORMAT if swe_agent.is_swe_agent(record) else None


def _outcome_of_nothing(file: BinaryIO, place: Path) -> ImportOutcome:
    """The outcome of a file without a session. Raises where it holds records of no format."""
    file.seek(0)
    first = next(read_records(file), None)
    if first is None:
        return _empty(place)
    node = _parsed(first)
    if node is not None and gym_rollouts.is_input(node):
        note = "task inputs, no sessions: they are paired when their rollouts are imported"
        return ImportOutcome(None, None, 0, None, (f"{place.name}: {note}",))
    raise ImportFormatError(
        f"{place}: no record of a known format (line {first.line}, byte offset {first.offset})",
        hint=f"the formats are {', '.join(FORMATS)}; name one with --format to see what is wrong",
    )


def _empty(place: Path) -> ImportOutcome:
    return ImportOutcome(None, None, 0, None, (f"{place.name} is empty: nothing to import",))


def _find_inputs(place: Path, given: str | os.PathLike[str] | None) -> RolloutInputs | None:
    if given is None:
        if not place.name.endswith(_ROLLOUTS_ENDING):
            return None
        beside = place.with_name(place.name.removesuffix(_ROLLOUTS_ENDING) + _INPUTS_ENDING)
        if not beside.is_file():
            return None
        given = beside
    inputs_place = Path(given)
    with _opened(inputs_place) as file:
        if os.fstat(file.fileno()).st_size > INPUTS_BYTES_MAX:
            raise ImportFormatError(
                f"{inputs_place} is over {INPUTS_BYTES_MAX} bytes",
                hint="the inputs are held in memory: give only those of these rollouts",
            )
        return RolloutInputs(_readable_inputs(file))


def _readable_inputs(file: BinaryIO) -> Iterator[JsonNode]:
    # A broken line of the inputs costs a pairing, and each rollout without one says so.
    for record in read_records(file):
        node = _parsed(record)
        if node is not None and gym_rollouts.is_input(node):
            yield node


@contextmanager
def _opened(place: Path) -> Iterator[BinaryIO]:
    try:
        file = place.open("rb")
    except OSError as error:
        raise ImportFormatError(
            f"{place} cannot be read: {error.strerror or error}", hint="check the path"
        ) from error
    with file:
        if not file.seekable():
            raise ImportFormatError(f"{place} is no file on a disk", hint="save it to a file first")
        yield file
