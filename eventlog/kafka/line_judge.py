"""`LineJudge`: what a writer's appends come to before they are sent.

An append that plainly follows a line of this writer's own is judged in memory (`owned_lines`): a
commit proves that nobody had claimed the line before it. Every other is judged by the mirror, once
that has read the session's partition to its end. What one transaction holds already counts as
written. Used by one thread, the writer's.
"""

import time
from collections.abc import Callable, Collection, Iterable
from typing import Final, NamedTuple

from eventlog.codec import EncodedEvent
from eventlog.errors import EventTooLargeError, FencedError
from eventlog.event import SessionReleased, SessionResumed
from eventlog.ids import use_minted
from eventlog.kafka.client import OutgoingRecord
from eventlog.kafka.errors import faults_as_ours
from eventlog.kafka.mirrored_lines import MirroredLines
from eventlog.kafka.owned_lines import OwnedLines, line_after
from eventlog.kafka.rereading import claims_sent, reread_line
from eventlog.kafka.sent_events import SentEvents
from eventlog.kafka.topic_writer import TopicWriter
from eventlog.keeping.append_rule import Append, judge_append, require_owner
from eventlog.keeping.claims import Claimant, own_event, require_session
from eventlog.keeping.kept_rows import KeptSession
from eventlog.line_state import LineState
from eventlog.log import Receipt

NO_IDS: Final[frozenset[bytes]] = frozenset()

RECORD_OVERHEAD_BYTES: Final = 512
"""More than Kafka adds to one record in a batch of its own, its key included."""


class Staged(NamedTuple):
    """An append that is judged and not sent: the line after it; whether it must be read back."""

    append: Append
    line: LineState
    partition: int
    read_back: bool


class CommitFirstError(Exception):
    """The append can be judged only after what is staged has been committed."""


class _Begun:
    """What the open transaction holds of one session: the line after it, and its event ids."""

    __slots__ = ("event_ids", "line")

    def __init__(self, line: LineState) -> None:
        self.line = line
        self.event_ids: set[bytes] = set()


class LineJudge:
    """The lines of one writer, and the rule by which its appends are judged."""

    def __init__(
        self,
        topic: TopicWriter,
        mirrored: MirroredLines,
        claimant: Claimant,
        read_to_end: Callable[[Collection[int]], None],
        left_s: Callable[[], float],
    ) -> None:
        """`read_to_end` brings the mirror to the end of partitions, or raises; in time `left_s`."""
        self.sent = SentEvents()
        self._topic = topic
        self._mirrored = mirrored
        self._claimant = claimant
        self._read_to_end = read_to_end
        self._left_s = left_s
        self._lines = OwnedLines(claimant.writer_id)
        self._begun: dict[str, _Begun] = {}
        self._at_end: set[int] = set()
        self._contested: dict[str, list[tuple[int, bytes]]] = {}
        self._stands: dict[bytes, int] = {}

    def look_anew(self) -> None:
        """What was read to the end may not be the end any more."""
        self._at_end.clear()

    def begin(self, staged: Staged) -> None:
        """The append is in the open transaction."""
        append = staged.append
        begun = self._begun.get(append.session_id)
        if begun is None:
            begun = self._begun[append.session_id] = _Begun(staged.line)
        begun.line = staged.line
        for event, _, _ in append.events:
            begun.event_ids.add(event.event_id)

    def end(self) -> None:
        """The transaction is sent, or given up: nothing counts as written any more."""
        self._begun.clear()

    def note_committed(self, staged: Staged, position: int) -> None:
        """The append is in the log; `position` is past its last record."""
        append = staged.append
        self.sent.forget(append)
        self._lines.advance(append, staged.line, position)
        if isinstance(append.events[0].event.body, SessionResumed):
            self._contested.pop(append.session_id, None)

    def drop(self, session_id: str) -> None:
        """Forget the line: it is another's, or must be read anew."""
        self._lines.drop(session_id)

    def reread(self, staged: Iterable[Staged]) -> None:
        """After the producer was made anew: what became of the lines, and of what was sent.

        Reads no further back than this writer's last commits: they prove that until then nobody
        had claimed anything of its own.
        """
        self._at_end.clear()
        since = {name: owned.position for name, owned in self._lines.items()}
        for one in staged:
            if not one.read_back:
                since.setdefault(one.append.session_id, 0)
        records = self._topic.read_since(since)
        self._stands.clear()
        for session_id in since:
            if self._topic.partition_of(session_id) in records.deleted:
                # What became of it meanwhile is not to be read any more: the mirror must know.
                self._lines.drop(session_id)
                continue
            owned = self._lines.find(session_id)
            line = LineState() if owned is None else owned.line
            now = reread_line(session_id, line, records.committed.get(session_id, ()))
            self._stands.update(now.stands)
            if now.line is None or not now.line.begun or now.line.attempt != line.attempt > 0:
                self._lines.drop(session_id)
            elif owned is None:
                self._lines.hold(session_id, now.line, now.event_ids, 0)
            else:
                self._lines.move(session_id, now.line, now.event_ids)
            attempt = max(1, line.attempt if now.line is None else now.line.attempt)
            claims = [
                claim
                for claim in claims_sent(records.sent.get(session_id, ()))
                if claim[0] > attempt and claim[1] not in now.stands
            ]
            if claims:
                self._contested[session_id] = claims

    def judge_again(self, staged: Staged) -> Staged | Receipt:
        """Judge what was sent in vain, after `reread`; its receipt where it was committed."""
        append = staged.append
        offset = self._stands.get(append.events[-1].digest)
        if offset is not None and not staged.read_back:
            return receipt_of(append, offset)
        is_minted_seed = append.expected_step == -1 and not staged.read_back
        if is_minted_seed and self._lines.find(append.session_id) is None:
            return staged
        return self.stage(append)

    def stage(self, append: Append) -> Staged | Receipt:
        """Judge an append; its first receipt where it stands already. Raises as `append_events`.

        A claim may stand only over a release, or on a line of this writer's own: any other must
        fence the line's writer first (`claiming`).
        """
        self._require_sizes(append)
        self._require_uncontested(append)
        self.sent.require_same(append)
        session_id = append.session_id
        begun = self._begun.get(session_id)
        after = None
        if begun is not None:
            after = self._lines.judge(append, begun.line, begun.event_ids)
        elif (owned := self._lines.find(session_id)) is not None:
            after = self._lines.judge(append, owned.line, NO_IDS)
        elif use_minted(session_id):
            after = line_after(session_id, append.events, None)
        if after is None:
            return self._judge_by_mirror(append)
        return Staged(append, after, self._topic.partition_of(session_id), read_back=False)

    def release(self, session_id: str, to_writer: str | None) -> Staged | Receipt:
        """Stage the release of a session that this writer owns. Raises `FencedError`."""
        line = self._line_of(session_id)
        if line is None:
            self.refresh([self._topic.partition_of(session_id)])
            kept = require_session(self._mirrored, session_id)
            require_owner(kept, self._claimant.writer_id)
            line = kept.line
        head = line.line_head(session_id)
        event = own_event(head, SessionReleased(to_writer), self._claimant)
        return self.stage(Append(session_id, [event], head.step, self._claimant.writer_id))

    def require_sizes_anew(self, append: Append) -> None:
        """Raise `EventTooLargeError` where the topic takes less by now. Asks it."""
        with faults_as_ours():
            self._topic.learn_limits(self._left_s())
        self._require_sizes(append)

    def _require_sizes(self, append: Append) -> None:
        bytes_max = self._topic.record_bytes_max - RECORD_OVERHEAD_BYTES
        for event, data, _ in append.events:
            if len(data) > bytes_max:
                if self._topic.learn_limits_again(self._left_s()):
                    return self._require_sizes(append)
                raise EventTooLargeError(
                    f"a {event.kind} event has {len(data)} bytes; the topic takes at most "
                    f"{bytes_max}",
                    hint="raise the topic's max.message.bytes (`steplog doctor` says to what)",
                    event_bytes=len(data),
                    event_bytes_max=bytes_max,
                    session_id=append.session_id,
                    step=event.step,
                )
        return None

    def _judge_by_mirror(self, append: Append) -> Staged | Receipt:
        """Judge an append by all that is in the log now."""
        session_id = append.session_id
        if session_id in self._begun:
            raise CommitFirstError
        partition = self._topic.partition_of(session_id)
        self.refresh([partition])
        kept = self._mirrored.find_session(session_id)
        judged = judge_append(append, kept, self._mirrored)
        if isinstance(judged, Receipt):
            return self._mirrored.placed(judged)
        if kept is None:
            return Staged(append, judged.line, partition, read_back=True)
        if isinstance(append.events[0].event.body, SessionResumed):
            return Staged(append, judged.line, partition, self._needs_read_back(append, kept))
        # `reread` finds a claim that was sent by who fenced this writer, and never committed, only
        # for lines that were held then; and a producer that is new knows of no fencing at all.
        if self._mirrored.aborted_claims(kept, self._left_s()):
            raise _contested(append)
        self._hold(kept)
        return Staged(append, judged.line, partition, read_back=False)

    def _needs_read_back(self, append: Append, kept: KeptSession) -> bool:
        """Whether the claim is one over a release. Raises where it is not for this producer."""
        body = append.events[0].event.body
        assert isinstance(body, SessionResumed)
        if kept.line.released:
            if body.over_release and len(append.events) == 1:
                return True
            hint = "claim it with take_over first: nothing follows a claim over a release"
            what = "was released"
        elif kept.line.writer == self._claimant.writer_id:
            return False
        else:
            what, hint = f"is held by writer {kept.line.writer}", "claim it with take_over"
        raise FencedError(
            f"the session {what}: it cannot be claimed in this way",
            hint=hint,
            session_id=append.session_id,
            step=kept.line.next_step - 1,
        )

    def _hold(self, kept: KeptSession) -> None:
        partition = self._topic.partition_of(kept.session_id)
        position = self._mirrored.position(partition)
        self._lines.hold(kept.session_id, kept.line, self._mirrored.recent_ids(kept), position)

    def _line_of(self, session_id: str) -> LineState | None:
        """The line, with what the open transaction holds of it; None where it is not known."""
        begun = self._begun.get(session_id)
        if begun is not None:
            return begun.line
        owned = self._lines.find(session_id)
        return None if owned is None else owned.line

    def _require_uncontested(self, append: Append) -> None:
        """Raise where another writer sent a claim that a reader of uncommitted records believes."""
        if not self._contested:
            return
        first = append.events[0]
        for attempt, digest in self._contested.get(append.session_id, ()):
            if attempt >= first.event.attempt and digest != first.digest:
                raise _contested(append)

    def refresh(self, partitions: Collection[int]) -> None:
        """Read partitions to their end, unless that was done since the last commit."""
        missing = set(partitions) - self._at_end
        if missing:
            self._read_to_end(missing)
            self._at_end |= missing


def _contested(append: Append) -> FencedError:
    return FencedError(
        "another writer claims the session, or began to",
        hint="resume the session: it goes on under a new attempt",
        session_id=append.session_id,
        step=append.expected_step,
    )


def receipt_of(append: Append, offset: int) -> Receipt:
    """The receipt of an append whose last event is at this offset."""
    first, last = append.events[0].event, append.events[-1]
    place = last.event
    return Receipt(append.session_id, first.step, place.step, place.attempt, last.digest, offset)


def records_of(events: Iterable[EncodedEvent], partition: int) -> list[OutgoingRecord]:
    """One session's events as records. Their time stamps are the events' times, in milliseconds.

    Brokers may refuse one in the future, and read one below zero as none: those are drawn in.
    """
    now_ms = time.time_ns() // 1_000_000
    return [
        OutgoingRecord(
            partition,
            max(0, min(event.time // 1_000, now_ms)),
            event.session_id.encode("utf-8"),
            data,
        )
        for event, data, _ in events
    ]
