"""Is a topic what its writers were told? Judged on the raw records, by the reader's rule.

Two readers of the topic, one of committed records and one of all, each run the rule over what they
get, and so does the rule's model. What writers were told (`Told`) must be there: everything that
was acknowledged, once, in order, unless it was rewound on purpose; nothing that was refused. The
two readers must agree at each step below the session's last committed event.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import NamedTuple

from eventlog.codec import decode_event
from eventlog.event import SessionResumed
from eventlog.kafka.client import TopicClient, TopicRecord
from eventlog.kafka.partitioning import partition_of
from eventlog.kafka.topic_writer import writer_transactional_id
from eventlog.line_state import VerdictKind
from tests.support.line_model import LineModel
from tests.support.line_records import LineKeeper, Record
from tests.support.log_workers import Report

READ_S_MAX = 40.0
MODEL_RECORDS_MAX = 500
"""The model works everything out anew for each record: longer sessions go without it."""

FIRST_KINDS = ("session_seeded", "session_forked")


@dataclass(frozen=True)
class SentRecord(Record):
    """A record of the topic, as the rule and its model read it."""

    stored_digest: bytes
    event_id: bytes
    place: tuple[int, int]
    is_committed: bool

    def __post_init__(self) -> None:
        object.__setattr__(self, "digest", self.stored_digest)

    def __str__(self) -> str:
        state = "committed" if self.is_committed else "aborted"
        return (
            f"{self.place} {state:9} {_name(self)}, {self.digest.hex()[:6]} on "
            f"{self.parent.hex()[:6]}{f' {self.claim}' if self.claim is not None else ''}"
        )

    @property
    def claim(self) -> SessionResumed | None:
        """Its body, where it is a claim on a session that was there."""
        return self.body if isinstance(self.body, SessionResumed) else None


class Told(NamedTuple):
    """What one answer said of a session's events, by their digests."""

    worker: str
    session: str
    digests: tuple[bytes, ...]
    offset: int | None


@dataclass
class Answers:
    """All that writers were told. `claims` are (session, attempt, writer id)."""

    written: list[Told] = field(default_factory=list)
    refused: list[Told] = field(default_factory=list)
    claims: list[tuple[str, int, str]] = field(default_factory=list)


@dataclass
class Judgement:
    """What was found: figures, and what is wrong (empty where all is well)."""

    acknowledged: int = 0
    records: int = 0
    uncommitted: int = 0
    accepted: int = 0
    rewound: int = 0
    lost_claims: int = 0
    superseded: int = 0
    lost: int = 0
    twice: int = 0
    sessions: int = 0
    unsettled: int = 0
    misled: int = 0
    """Sessions of which another seed was sent before and never committed: a reader of all records
    cannot follow them, whatever writers do."""

    wrong: list[str] = field(default_factory=list)


def answers_of(reports: Iterable[Report]) -> Answers:
    """What workers reported, as answers."""
    answers = Answers()
    for worker, name, facts in reports:
        digests = tuple(bytes.fromhex(each) for each in facts.get("digests", ()))
        session = facts.get("session", "")
        if name == "written":
            answers.written.append(Told(worker, session, digests, facts["offset"]))
        elif name == "refused":
            answers.refused.append(Told(worker, session, digests, None))
        elif name == "claimed":
            answers.claims += [(each, n, facts["writer"]) for each, n in facts["attempts"].items()]
        elif name == "settled":
            # A transaction holds all of its events or none; what waited behind it was not sent.
            found = facts["found"]
            end = 0 if found is None else facts["digests"].index(found) + 1 if digests else 0
            answers.written.append(Told(worker, session, digests[:end], None))
            answers.refused.append(Told(worker, session, digests[end:], None))
    return answers


def read_topic(client: TopicClient, writers: Iterable[str] = ()) -> list[SentRecord]:
    """Every record ever sent, each partition in order, and which are committed.

    `writers`: ids of writers that are gone; what they left open is aborted first.
    """
    for writer in writers:
        producer = client.open_producer(writer_transactional_id(client.topic, writer))
        producer.initialise(READ_S_MAX)
        producer.abandon()
    partitions = range(client.describe().partition_count)
    committed = {(each.partition, each.offset) for each in _read(client, partitions, True)}
    return [
        _sent(each, (each.partition, each.offset) in committed)
        for each in _read(client, partitions, False)
    ]


def _read(client: TopicClient, partitions: Sequence[int], committed: bool) -> list[TopicRecord]:
    from tests.support.topic_clients import read_to_end

    reader = client.open_reader(committed)
    try:
        reader.seek(dict.fromkeys(partitions, 0))
        found = read_to_end(reader)
    finally:
        reader.close()
    return sorted(found, key=lambda each: (each.partition, each.offset))


def _sent(record: TopicRecord, is_committed: bool) -> SentRecord:
    data = record.value or b""
    event = decode_event(data)
    return SentRecord(
        event.session_id,
        event.step,
        event.attempt,
        event.kind,
        event.parent,
        event.body,
        0,
        sha256(data).digest(),
        event.event_id,
        (record.partition, record.offset),
        is_committed,
    )


def judge_topic(records: Sequence[SentRecord], answers: Answers, partition_count: int) -> Judgement:
    """Hold the records against the rule, its model, and what writers were told."""
    found = Judgement(records=len(records))
    by_session: dict[str, list[SentRecord]] = {}
    for record in records:
        by_session.setdefault(record.session_id, []).append(record)
        if record.place[0] != partition_of(record.session_id, partition_count):
            found.wrong.append(f"{record.session_id} lies in partition {record.place[0]}")
    acknowledged = {digest for told in answers.written for digest in told.digests}
    found.acknowledged = len(acknowledged)
    found.uncommitted = sum(not record.is_committed for record in records)
    judges = {
        session: _SessionJudge(session, sent, acknowledged, found)
        for session, sent in by_session.items()
    }
    found.sessions = len(judges)
    for judge in judges.values():
        judge.judge()
    _compare_answers(judges, answers, found)
    for session, sent in by_session.items():
        if any(session in what for what in found.wrong):
            found.wrong += [f"  {each}" for each in sent]
    return found


class _SessionJudge:
    """One session's records, read by both readers side by side."""

    def __init__(
        self,
        session: str,
        records: Sequence[SentRecord],
        acknowledged: set[bytes],
        found: Judgement,
    ) -> None:
        self.session = session
        self.records = records
        self.acknowledged = acknowledged
        self.found = found
        self.committed, self.all = LineKeeper(session), LineKeeper(session)
        self.models = LineModel(session), LineModel(session)
        self.unsettled: SentRecord | None = None
        self.claims: dict[tuple[int, str | None], bytes] = {}
        self.refused: set[bytes] = set()

    def blame(self, what: str) -> None:
        self.found.wrong.append(f"session {self.session}: {what}")

    def judge(self) -> None:
        self._require_places()
        misled = self._is_misled()
        self.found.misled += misled
        for record in self.records:
            seen = self._accept(self.all, 1, record)
            if not record.is_committed:
                continue
            before = self.committed.standing() if record.claim is not None else []
            verdict = self._accept(self.committed, 0, record)
            if verdict is VerdictKind.ACCEPTED:
                self._note_accepted(record, before)
                if not misled:
                    self._compare_readers(record, seen)
            elif verdict is VerdictKind.DUPLICATE:
                self.found.twice += 1
                self.blame(f"{_name(record)} was committed twice")
        self._require_sound_line()

    def _require_places(self) -> None:
        """A (step, attempt) once sent is never another event's; but for claims over a release."""
        digests: dict[tuple[int, int], SentRecord] = {}
        for record in self.records:
            if (record.claim is not None and record.claim.over_release) or (
                record.kind in FIRST_KINDS
            ):
                continue
            first = digests.setdefault((record.attempt, record.step), record)
            if first.digest != record.digest:
                self.blame(f"{_name(record)} at {record.place} was {_name(first)} {first.place}")

    def _is_misled(self) -> bool:
        first = self.records[0]
        stands = next((each for each in self.records if each.is_committed), first)
        return not first.is_committed and stands.digest != first.digest

    def _accept(self, keeper: LineKeeper, number: int, record: SentRecord) -> VerdictKind:
        verdict = keeper.accept(record)
        if len(self.records) > MODEL_RECORDS_MAX:
            return verdict.kind
        judged = self.models[number].judge(record)
        if (str(verdict.kind), verdict.rule) != (judged.verdict, judged.rule):
            self.blame(f"the rule says {verdict} of {_name(record)}, its model {judged}")
        return verdict.kind

    def _note_accepted(self, record: SentRecord, before: list[Record]) -> None:
        self.found.accepted += 1
        claim = record.claim
        if record.kind in FIRST_KINDS:
            self.claims[record.attempt, record.body.writer] = record.digest  # type: ignore[union-attr]
        if claim is None:
            return
        self.claims[record.attempt, claim.writer] = record.digest
        stays = {each.digest for each in self.committed.standing()}
        gone = [each for each in before if each.digest not in stays]
        if claim.reason == "rewind":
            self.found.rewound += len(gone)
            return
        for each in gone:
            # A claim over a release may be made once more, on the release itself.
            is_claim_again = each.parent == record.parent and _is_over_release(each)
            if not is_claim_again:
                self.found.lost += each.digest in self.acknowledged
                self.blame(f"{_name(record)} sets {_name(each)} aside, and was not told to")

    def _compare_readers(self, record: SentRecord, seen: VerdictKind) -> None:
        """The reader of all records has the same line; a claim over a release may come again."""
        if seen in (VerdictKind.ACCEPTED, VerdictKind.DUPLICATE):
            # A line is the chain of parents of its head: equal heads, equal lines.
            head = self.committed.line.state.head
            if seen is VerdictKind.DUPLICATE:
                line = [each.digest for each in self.all.standing() if each.step <= record.step]
                head_seen = line[-1] if line else b""
            else:
                head_seen = self.all.line.state.head
            if head_seen != head:
                self.blame(f"the readers' lines differ at {_name(record)} {record.place}")
            self.unsettled = None
            return
        if self.unsettled is not None or not _is_over_release(record):
            self.blame(f"a reader of all records has {_name(record)} as {seen}")
        self.unsettled = record
        self.found.unsettled += 1

    def _require_sound_line(self) -> None:
        for keeper, what in ((self.committed, "committed"), (self.all, "all")):
            state = keeper.line.state
            if what == "all" and self._is_misled():
                continue
            if state.error is not None:
                self.blame(f"a reader of {what} records stops: {state.error}")
            if state.counts.conflicts or state.counts.stopped:
                self.blame(f"a reader of {what} records counts {state.counts}")
        counts = self.committed.line.state.counts
        self.found.lost_claims += counts.lost_claims
        self.found.superseded += counts.superseded
        line = self.committed.standing()
        if [each.step for each in line] != [line[0].step + number for number in range(len(line))]:
            self.blame("the line has gaps")
        ids = [each.event_id for each in line]  # type: ignore[attr-defined]
        if len(set(ids)) != len(ids):
            self.found.twice += 1
            self.blame("an event id stands twice in the line")


def _compare_answers(judges: dict[str, _SessionJudge], answers: Answers, found: Judgement) -> None:
    nothing = LineKeeper()
    steps: dict[tuple[str, str, int], int] = {}
    for told in answers.written:
        keeper = judges[told.session].committed if told.session in judges else nothing
        for digest in told.digests:
            event = keeper.events.get(digest)
            if event is None:
                found.lost += 1
                found.wrong.append(
                    f"session {told.session}: acknowledged to {told.worker}, and "
                    f"not accepted: {digest.hex()[:12]}"
                )
                continue
            key = (told.worker, told.session, event.attempt)
            if steps.get(key, -1) >= event.step:
                found.wrong.append(f"session {told.session}: step {event.step} out of order")
            steps[key] = event.step
        if told.offset is not None and told.digests:
            event = keeper.events.get(told.digests[-1])
            if event is not None and event.place[1] != told.offset:  # type: ignore[attr-defined]
                found.wrong.append(
                    f"session {told.session}: receipt says offset {told.offset}, "
                    f"the event is at {event.place}"
                )  # type: ignore[attr-defined]
    for told in answers.refused:
        keeper = judges[told.session].committed if told.session in judges else nothing
        for digest in set(told.digests) & keeper.events.keys():
            found.wrong.append(
                f"session {told.session}: refused to {told.worker}, and accepted: "
                f"{_name(keeper.events[digest])}"
            )
    for session, attempt, writer in answers.claims:
        if session not in judges or (attempt, writer) not in judges[session].claims:
            found.wrong.append(f"session {session}: {writer} was told of attempt {attempt}")


def _is_over_release(record: Record) -> bool:
    return isinstance(record.body, SessionResumed) and record.body.over_release


def _name(record: Record) -> str:
    return f"{record.kind} at step {record.step} of attempt {record.attempt}"
