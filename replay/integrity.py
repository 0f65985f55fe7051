"""`check`: does what is stored still say what was recorded? One report per session.

Each session is re-hashed and cross-checked by its log, judged anew by the reader's rule, folded
from its seed with every recorded digest compared, and each blob it refers to is re-hashed.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from eventlog.blob_store import BlobStore
from eventlog.codec import decode_event
from eventlog.content import BlobRef
from eventlog.errors import (
    DivergenceError,
    IntegrityError,
    NotRestorableError,
    SchemaError,
    StateError,
    SteplogError,
)
from eventlog.line_state import KnownEvent, LineState, VerdictKind, needs_body
from eventlog.log import EventLog, Finding
from eventlog.session_line import SessionLine
from replay.replayer import Replayer

OK: Final = "ok"
INCOMPLETE: Final = "incomplete"
CONFLICTS: Final = "conflicts"
STOPPED: Final = "stopped"
DAMAGED: Final = "damaged"

EXIT_CODE_OF_VERDICT: Final = {OK: 0, INCOMPLETE: 6, CONFLICTS: 4, STOPPED: 4, DAMAGED: 4}
"""The worst verdict decides the command's exit code; 4 is worse than 6."""

LOG_ITSELF: Final = "(log)"
"""The `session` of a report on damage that belongs to no one session."""


class Expectation(NamedTuple):
    """What a receipt says of a session: the event digest (32 bytes) at a step."""

    session: str
    step: int
    event_digest: bytes


class CheckReport(NamedTuple):
    """What `check` found in one session.

    `events` counts standing events of its own; `first_bad` is the first damaged, conflicting or
    diverging step; `details` says in words what is wrong.
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


def check_sessions(
    log: EventLog,
    blobs: BlobStore,
    replayer: Replayer,
    session_id: str | None,
    expect: Sequence[Expectation],
) -> Iterator[CheckReport]:
    """Check one session, or the whole log. Raises `SessionNotFoundError` for a named one."""
    if session_id is None:
        by_session: dict[str | None, list[Finding]] = {}
        for finding in log.find_damage():
            by_session.setdefault(finding.session_id, []).append(finding)
        known = [info.session_id for info in log.list_sessions()]
        if None in by_session:
            yield _report_of_log(by_session[None])
    else:
        by_session = {session_id: list(log.find_damage([session_id]))}
        known = [session_id]
    named = [each for each in by_session if each is not None and each not in known]
    for each in (*known, *sorted(named)):
        expected = [one for one in expect if one.session == each]
        yield _SessionCheck(log, blobs, replayer, each, by_session.get(each, [])).run(expected)
    for one in expect:
        if one.session not in known:
            yield CheckReport(
                one.session, DAMAGED, 0, 0, 0, 0, 0, one.step, ("the session is missing",)
            )


def _report_of_log(findings: list[Finding]) -> CheckReport:
    details = tuple(f"{finding.error}: {finding.detail}" for finding in findings)
    return CheckReport(LOG_ITSELF, DAMAGED, 0, 0, 0, 0, 0, None, details)


class _SessionCheck:
    """The check of one session: its verdict only ever gets worse."""

    def __init__(
        self,
        log: EventLog,
        blobs: BlobStore,
        replayer: Replayer,
        session_id: str,
        findings: list[Finding],
    ) -> None:
        self._log = log
        self._blobs = blobs
        self._replayer = replayer
        self._session_id = session_id
        self._verdict = OK
        self._first_bad: int | None = None
        self._details: list[str] = []
        for finding in findings:
            self._note(DAMAGED, finding.step, f"{finding.error}: {finding.detail}")

    def run(self, expect: Sequence[Expectation]) -> CheckReport:
        """Do every check that the damage found so far still lets be done."""
        state = self._judge_records()
        self._read_standing_line(expect)
        self._fold()
        counts = state.counts
        standing = max(0, state.next_step - state.first_step)
        return CheckReport(
            self._session_id,
            self._verdict,
            standing,
            counts.duplicates,
            counts.lost_claims,
            state.superseded if state.begun else 0,
            counts.conflicts,
            self._first_bad,
            tuple(self._details),
        )

    def _judge_records(self) -> LineState:
        """Judge every record kept for the session anew, in log order."""
        accepted: dict[bytes, KnownEvent] = {}
        line = SessionLine(self._session_id, accepted.get)
        try:
            for record in self._log.read_records(self._session_id):
                prefix = record.prefix
                body = decode_event(record.data).body if needs_body(prefix.kind) else None
                verdict = line.accept(prefix, record.digest, body)
                if verdict.kind is VerdictKind.ACCEPTED:
                    accepted[record.digest] = KnownEvent(prefix.step, prefix.attempt)
                elif verdict.kind is VerdictKind.CONFLICT:
                    self._note(CONFLICTS, prefix.step, "a record conflicts with the line")
                elif verdict.error is not None and verdict.rule != 5:
                    self._note(STOPPED, prefix.step, str(verdict.error))
        except (IntegrityError, SchemaError) as error:
            self._note_error(error)
        return line.state

    def _read_standing_line(self, expect: Sequence[Expectation]) -> None:
        """Decode every standing event whole, re-hash its blobs, compare with the receipts."""
        digests: dict[int, bytes] = {}
        wanted = {one.step for one in expect}
        try:
            for record in self._log.read_session(self._session_id):
                step = record.prefix.step
                if step in wanted:
                    digests[step] = record.digest
                for _, content in decode_event(record.data).contents():
                    if isinstance(content.data, BlobRef):
                        self._check_blob(step, content.data)
        except (IntegrityError, SchemaError) as error:
            self._note_error(error)
        for one in expect:
            found = digests.get(one.step)
            if found != one.event_digest:
                shown = "is missing" if found is None else f"has digest {found.hex()}"
                self._note(DAMAGED, one.step, f"the event of step {one.step} {shown}")

    def _check_blob(self, step: int, ref: BlobRef) -> None:
        try:
            self._blobs.get_blob(ref)
        except IntegrityError as error:
            self._note(DAMAGED, step, f"{type(error).__name__}: {error}")

    def _fold(self) -> None:
        """Fold from the seed; each step's recorded digest is compared on the way."""
        if self._verdict in (DAMAGED, STOPPED):
            return
        try:
            self._replayer.replay_to(self._session_id, use_snapshots=False)
        except (DivergenceError, IntegrityError, SchemaError) as error:
            self._note_error(error)
        except (NotRestorableError, StateError) as error:
            self._note(INCOMPLETE, None, f"{type(error).__name__}: {error}")

    def _note_error(self, error: SteplogError) -> None:
        verdict = STOPPED if isinstance(error, SchemaError) else DAMAGED
        self._note(verdict, error.step, f"{type(error).__name__}: {error}")

    def _note(self, verdict: str, step: int | None, detail: str) -> None:
        order = (OK, INCOMPLETE, CONFLICTS, STOPPED, DAMAGED)
        self._verdict = max(self._verdict, verdict, key=order.index)
        if detail not in self._details:
            self._details.append(detail)
        if step is not None and (self._first_bad is None or step < self._first_bad):
            self._first_bad = step
