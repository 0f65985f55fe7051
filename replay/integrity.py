"""`check`: does what is stored still say what was recorded? One report per session.

Each session is re-hashed and cross-checked by its log, judged anew by the reader's rule, and folded
from its seed with every recorded digest compared; the count and root of each close are computed
again; each blob it refers to is re-hashed, and each snapshot held against the log. Damage is
reported and never raised; a log that cannot be reached is.
"""

from collections.abc import Container, Iterator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from eventlog.blob_store import BlobStore
from eventlog.content import BlobRef
from eventlog.errors import (
    DivergenceError,
    IntegrityError,
    NotRestorableError,
    SchemaError,
    SessionNotFoundError,
    SnapshotError,
    StateError,
    SteplogError,
    StepNotFoundError,
)
from eventlog.event import DIGEST_BYTES, Event, SessionClosed
from eventlog.keeping.kept_records import decode_record
from eventlog.line_state import KnownEvent, LineState, VerdictKind, needs_body
from eventlog.log import EventLog, Finding, LogRecord
from eventlog.merkle_root import MerkleRoot
from eventlog.session_line import SessionLine
from replay.replayer import Replayer
from snapshots.snapshot_folder import is_denied
from snapshots.snapshot_store import SnapshotStore

OK: Final = "ok"
INCOMPLETE: Final = "incomplete"
CONFLICTS: Final = "conflicts"
STOPPED: Final = "stopped"
DAMAGED: Final = "damaged"

VERDICTS: Final = (OK, INCOMPLETE, CONFLICTS, STOPPED, DAMAGED)
"""From the best to the worst."""

EXIT_CODE_OF_VERDICT: Final = {OK: 0, INCOMPLETE: 6, CONFLICTS: 4, STOPPED: 4, DAMAGED: 4}
"""The worst verdict decides the command's exit code; 4 is worse than 6."""

LOG_ITSELF: Final = "(log)"
"""The `session` of a report on damage that belongs to no one session."""

DETAILS_MAX: Final = 100
"""What is wrong with one session is told in so many lines; the rest is counted."""

# What a damaged log may answer to a question about a session that it named itself.
_DAMAGE: Final = (IntegrityError, SchemaError, SessionNotFoundError, StepNotFoundError)
_SCHEMA_ERRORS: Final = frozenset(each.__name__ for each in SchemaError.__subclasses__())


class Expectation(NamedTuple):
    """What a receipt says of a session: the event digest (32 bytes) at a step."""

    session: str
    step: int
    event_digest: bytes


class CheckReport(NamedTuple):
    """What `check` found in one session.

    `events` counts standing events of its own; `first_bad` is the first damaged, conflicting or
    diverging step; `details` says in words what is wrong, and what came after the close.
    """

    session: str
    verdict: str
    events: int
    duplicates: int
    lost_claims: int
    superseded: int
    conflicts: int
    first_bad: int | None
    details: tuple[str, ...]


class Kept(NamedTuple):
    """What is checked: a workspace's log, blobs and snapshots, and the replayer over them."""

    log: EventLog
    blobs: BlobStore
    snapshots: SnapshotStore
    replayer: Replayer


def check_sessions(
    kept: Kept, session_id: str | None, expect: Sequence[Expectation]
) -> Iterator[CheckReport]:
    """Check one session, or all there is.

    Raises `SessionNotFoundError` for a named one that nothing is expected of: where a receipt says
    that it was there, its loss is damage.
    """
    if session_id is None:
        yield from _check_all(kept, expect)
        return
    expected = [one for one in expect if one.session == session_id]
    try:
        findings = list(kept.log.find_damage([session_id]))
    except SessionNotFoundError:
        if not expected:
            raise
        yield from _missing(expect, ())
        return
    yield _SessionCheck(kept, session_id, findings).run(expected)
    yield from _missing(expect, {session_id})


def _check_all(kept: Kept, expect: Sequence[Expectation]) -> Iterator[CheckReport]:
    by_session: dict[str, list[Finding]] = {}
    of_log: list[str] = []
    for finding in kept.log.find_damage():
        # A damaged log may name a session by what is no text: that is of no session.
        if type(finding.session_id) is str:
            by_session.setdefault(finding.session_id, []).append(finding)
        else:
            of_log.append(_told(finding))
    known, problem = _listed(kept.log)
    of_log += [] if problem is None else [_named(problem)]
    known.update(dict.fromkeys(sorted(by_session)))
    of_log += _strange_snapshots(kept.snapshots, known)
    if of_log:
        yield CheckReport(LOG_ITSELF, DAMAGED, 0, 0, 0, 0, 0, None, _shortened(of_log))
    for each in known:
        expected = [one for one in expect if one.session == each]
        yield _SessionCheck(kept, each, by_session.get(each, [])).run(expected)
    yield from _missing(expect, known.keys())


def _listed(log: EventLog) -> tuple[dict[str, None], IntegrityError | None]:
    """The sessions that the log knows by name, and the first thing wrong in its list of them.

    The list ends there; the sound sessions after it have reports of their own all the same.
    """
    known: dict[str, None] = {}
    try:
        for info in log.list_sessions():
            known[info.session_id] = None
    except IntegrityError as error:
        with suppress(IntegrityError):
            known.update(dict.fromkeys(log.session_ids()))
        return known, error
    return known, None


def _missing(expect: Sequence[Expectation], known: Container[str]) -> Iterator[CheckReport]:
    for one in expect:
        if one.session not in known:
            details = ("the session is missing",)
            yield CheckReport(one.session, DAMAGED, 0, 0, 0, 0, 0, one.step, details)


def _strange_snapshots(snapshots: SnapshotStore, known: Container[str]) -> list[str]:
    """Snapshots that no session's own check comes to: of sessions that the log does not hold."""
    strange = {
        ref.session_id: None for ref in snapshots.list_snapshots() if ref.session_id not in known
    }
    return [f"snapshots are kept of session {each!r}, which the log lacks" for each in strange]


class _SessionCheck:
    """The check of one session: its verdict only ever gets worse."""

    def __init__(self, kept: Kept, session_id: str, findings: Sequence[Finding]) -> None:
        self._kept = kept
        self._session_id = session_id
        self._verdict = OK
        self._first_bad: int | None = None
        self._details: list[str] = []
        self._accepted = _AcceptedDigests()
        for finding in findings:
            verdict = STOPPED if finding.error in _SCHEMA_ERRORS else DAMAGED
            self._note(verdict, finding.step, _told(finding))

    def run(self, expect: Sequence[Expectation]) -> CheckReport:
        """Do every check that the damage found so far still lets be done."""
        state = self._judge_records()
        self._read_standing_line(state.first_step, expect)
        if self._verdict not in (DAMAGED, STOPPED):
            self._fold()
        self._check_snapshots()
        counts = state.counts
        return CheckReport(
            self._session_id,
            self._verdict,
            max(0, state.next_step - state.first_step),
            counts.duplicates,
            counts.lost_claims,
            state.superseded if state.begun else 0,
            counts.conflicts,
            self._first_bad,
            _shortened(self._details),
        )

    def _judge_records(self) -> LineState:
        """Judge every record kept for the session anew, in log order."""
        line = SessionLine(self._session_id, self._accepted.find)
        try:
            for record in self._kept.log.read_records(self._session_id):
                prefix = record.prefix
                body = decode_record(record).body if needs_body(prefix.kind) else None
                verdict = line.accept(prefix, record.digest, body)
                if verdict.kind is VerdictKind.ACCEPTED:
                    self._accepted.add(record)
                elif verdict.kind is VerdictKind.CONFLICT:
                    self._note(CONFLICTS, prefix.step, "a record conflicts with the line")
                elif verdict.error is not None and verdict.rule != 5:
                    self._note(STOPPED, prefix.step, str(verdict.error))
        except _DAMAGE as error:
            self._note_error(error)
        return line.state

    def _read_standing_line(self, first_own: int, expect: Sequence[Expectation]) -> None:
        """Decode every standing event whole; blobs, roots and receipts must fit."""
        digests: dict[int, bytes] = {}
        wanted = {one.step for one in expect}
        root = MerkleRoot()
        late = _AfterClose()
        try:
            for record in self._kept.log.read_session(self._session_id):
                step = record.prefix.step
                if step in wanted:
                    digests[step] = record.digest
                event = decode_record(record)
                for _, content in event.contents():
                    if isinstance(content.data, BlobRef):
                        self._check_blob(step, content.data)
                if step < first_own:
                    continue  # of a branch's prefix; its parent's check counts it
                if isinstance(event.body, SessionClosed):
                    self._check_close(step, event.body, root)
                root.add(record.data)
                late.note(event)
        except _DAMAGE as error:
            self._note_error(error)
        if late.steps:
            self._note(OK, None, late.told())
        for one in expect:
            self._compare_receipt(one, digests.get(one.step))

    def _compare_receipt(self, expected: Expectation, found: bytes | None) -> None:
        if found == expected.event_digest:
            return
        what = f"the event of step {expected.step}"
        known = self._accepted.find(expected.event_digest)
        if known is not None and known.step == expected.step:
            # A claim went on from before it: that is no loss, but it does not stand either.
            self._note(INCOMPLETE, expected.step, f"{what} is there, but was superseded")
            return
        shown = "is missing" if found is None else f"has digest {found.hex()}"
        wanted = expected.event_digest.hex()
        self._note(DAMAGED, expected.step, f"{what} {shown}; expected was {wanted}")

    def _check_close(self, step: int, closed: SessionClosed, root: MerkleRoot) -> None:
        if (closed.event_count, closed.root) != (root.count, root.root()):
            self._note(
                DAMAGED,
                step,
                f"RootMismatchError: the close names {closed.event_count} events and root "
                f"{closed.root.hex()}, found are {root.count} and {root.root().hex()}",
            )

    def _check_blob(self, step: int, ref: BlobRef) -> None:
        try:
            self._kept.blobs.get_blob(ref)
        except IntegrityError as error:
            self._note(DAMAGED, step, _named(error))

    def _fold(self) -> None:
        """Fold from the seed; each step's recorded digest is compared on the way."""
        try:
            replayed = self._kept.replayer.replay_to(self._session_id, use_snapshots=False)
            # A state that nothing changed was not read yet, only re-hashed.
            _ = replayed.opaque_state
        except (DivergenceError, *_DAMAGE) as error:
            self._note_error(error)
        except (NotRestorableError, StateError) as error:
            self._note(INCOMPLETE, None, _named(error))

    def _check_snapshots(self) -> None:
        """A bad snapshot costs time and never a state; but what is stored is not what was."""
        damage: list[SnapshotError] = []
        refs = self._kept.snapshots.list_snapshots(self._session_id, report=damage.append)
        for ref in refs:
            try:
                snapshot = self._kept.snapshots.get_snapshot(ref)
                problem = self._kept.replayer.snapshot_problem(snapshot)
            except SnapshotError as error:
                damage.append(error)
            except (StateError, *_DAMAGE):
                continue  # told already, of the log itself or of the fold
            else:
                if problem is not None:
                    self._note(DAMAGED, None, f"snapshot of step {ref.step}: {problem}")
        for each in damage:
            # What may not be looked at is not proven, but nothing says that it is bad.
            self._note(INCOMPLETE if is_denied(each) else DAMAGED, None, _named(each))

    def _note_error(self, error: SteplogError) -> None:
        verdict = STOPPED if isinstance(error, SchemaError) else DAMAGED
        self._note(verdict, error.step, _named(error))

    def _note(self, verdict: str, step: int | None, detail: str) -> None:
        self._verdict = max(self._verdict, verdict, key=VERDICTS.index)
        if detail not in self._details[-DETAILS_MAX:]:
            self._details.append(detail)
        # A damaged row may give a step that is no number.
        if type(step) is int and (self._first_bad is None or step < self._first_bad):
            self._first_bad = step


class _AfterClose:
    """What stands after the last close: no fault, but nothing proves that it is all there is."""

    def __init__(self) -> None:
        self.steps: list[int] = []
        self._closed = False

    def note(self, event: Event) -> None:
        """Take the next own event of the standing line."""
        if event.kind in ("session_closed", "session_resumed"):
            self._closed = event.kind == "session_closed"
            self.steps.clear()
        elif self._closed:
            self.steps.append(event.step)

    def told(self) -> str:
        """The steps, in words: they follow each other."""
        first, last = self.steps[0], self.steps[-1]
        steps = f"step {first}" if first == last else f"steps {first} to {last}"
        return f"after close, outside the closed root: {steps}"


class _AcceptedDigests:
    """What the line asks about claims, and about what does not fit: 32 bytes an event, searched."""

    def __init__(self) -> None:
        self._of_attempt: dict[int, tuple[int, bytearray]] = {}

    def add(self, record: LogRecord) -> None:
        """Remember an accepted record; those of one attempt come step by step."""
        prefix = record.prefix
        _, digests = self._of_attempt.setdefault(prefix.attempt, (prefix.step, bytearray()))
        digests += record.digest

    def find(self, digest: bytes) -> KnownEvent | None:
        """The accepted event of this digest."""
        for attempt, (first_step, digests) in self._of_attempt.items():
            place = digests.find(digest)
            while place > 0 and place % DIGEST_BYTES:
                place = digests.find(digest, place + 1)
            if place >= 0:
                return KnownEvent(first_step + place // DIGEST_BYTES, attempt)
        return None


def _told(finding: Finding) -> str:
    return f"{finding.error}: {finding.detail}"


def _named(error: SteplogError) -> str:
    return f"{type(error).__name__}: {error}"


def _shortened(details: Sequence[str]) -> tuple[str, ...]:
    shown = tuple(dict.fromkeys(details[:DETAILS_MAX]))
    more = len(details) - DETAILS_MAX
    return (*shown, f"and {more} more") if more > 0 else shown
