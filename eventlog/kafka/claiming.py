"""`Claiming`: how a writer makes sessions its own.

Four ways, by who owns a session now:

- this writer itself: the claim goes through its own producer;
- nobody, after a release: a claim over the release, through the own producer too, which is read
  back, because others may have sent one; nobody is fenced;
- another writer: its transactional id is initialised, which fences it; the log is read to its end;
  if the line still stands where it stood, the claims of all its sessions are one transaction of
  that same fencing producer. Commit is the proof;
- nobody, and never released (an import): as the last, under an id made from the session's.

Used by any thread; one claim at a time.
"""

import random
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple, Protocol

from eventlog.codec import decode_event
from eventlog.errors import (
    AppendUncertainError,
    FencedError,
    LogUnavailableError,
    SteplogError,
)
from eventlog.event import SessionResumed
from eventlog.kafka.client import OutgoingRecord, TopicClient, TopicProducer
from eventlog.kafka.client_errors import (
    BrokersUnavailable,
    ClientFault,
    ProducerBroken,
    ProducerFenced,
    RecordsRefused,
)
from eventlog.kafka.committer import KafkaCommitter, Wished
from eventlog.kafka.errors import as_ours, faults_as_ours
from eventlog.kafka.line_judge import record_of
from eventlog.kafka.mirrored_lines import MirroredLines
from eventlog.kafka.partitioning import partition_of
from eventlog.kafka.topic_writer import (
    require_session_name,
    unowned_transactional_id,
    writer_transactional_id,
)
from eventlog.keeping.append_rule import Accepted, Append, judge_append
from eventlog.keeping.claims import Claimant, Takeover, claim_append, require_session
from eventlog.keeping.kept_rows import KeptSession
from eventlog.log import Receipt
from eventlog.mirror import Mirror

TRIES_MAX: Final = 8
"""How often a claim is made anew because the line moved meanwhile, before it is given up."""

FENCED_WAIT_MAX_S: Final = 0.5
"""Two that claim at once fence each other: each waits up to so long, by chance."""


COMMIT_MIN_S: Final = 0.5
"""A commit is given at least so long, also at the end of the deadline."""


class Ask(Protocol):
    """Runs something in the writer's thread, after all that was submitted before."""

    def __call__(
        self, run: Callable[[KafkaCommitter], Any], session_ids: tuple[str, ...] = ()
    ) -> Any: ...


class _LineMovedError(Exception):
    """Another added to the line, or claimed it, between reading and claiming."""


class _Claim(NamedTuple):
    """A claim that may be made: the session as it was read, and the events that claim it."""

    kept: KeptSession
    append: Append


class Claiming:
    """Makes claims for one writer."""

    def __init__(
        self,
        client: TopicClient,
        mirror: Mirror,
        claimant: Claimant,
        ask: Ask,
        *,
        deadline_s: float,
    ) -> None:
        self._client = client
        self._mirror = mirror
        self._mirrored = MirroredLines(mirror)
        self._claimant = claimant
        self._ask = ask
        self._deadline_s = deadline_s
        self._deadline = 0.0
        self._lock = threading.Lock()

    def take_over(self, wish: Takeover) -> dict[str, int]:
        """Claim the sessions; the new attempt of each. Raises as `EventLog.take_over`.

        All are judged before any is claimed. The claims of one owner are one transaction; where
        sessions of several owners are asked for, a failure may come when some are claimed already.
        """
        session_ids = tuple(dict.fromkeys(wish.session_ids))
        with self._lock:
            self._begin(session_ids)
            for _ in range(TRIES_MAX):
                with suppress(_LineMovedError):
                    return self._take_over(session_ids, wish)
            raise self._contended(session_ids[0])

    def append_claim(self, append: Append) -> Receipt:
        """Append a batch that begins with `session_resumed`, fencing the owner where there is one.

        Raises as `EventLog.append_events`.
        """
        session_id = append.session_id
        with self._lock:
            self._begin((session_id,))
            for _ in range(TRIES_MAX):
                with suppress(_LineMovedError):
                    return self._append_claim(append)
            raise self._contended(session_id)

    def next_attempt(self, session_id: str) -> int:
        """One above the highest attempt that was ever sent for the session."""
        return 1 + self._highest_attempt(session_id)

    def _begin(self, session_ids: tuple[str, ...]) -> None:
        self._deadline = time.monotonic() + self._deadline_s
        # What this writer has submitted for them comes first; and none may be uncertain.
        self._ask(lambda _: None, session_ids)

    def _take_over(self, session_ids: Sequence[str], wish: Takeover) -> dict[str, int]:
        self._read_to_end(session_ids)
        wanted = [self._claim_of(session_id, wish) for session_id in session_ids]
        attempts: dict[str, int] = {}
        fenced: dict[str, list[_Claim]] = {}
        for claim in wanted:
            other = self._owner_to_fence(claim.kept)
            if other is not None:
                fenced.setdefault(other, []).append(claim)
            elif claim.kept.line.released:
                attempts[claim.kept.session_id] = self._claim_released(claim, wish)
            else:
                attempts[claim.kept.session_id] = self._claim_own(claim.append)
        for transactional_id, claims in fenced.items():
            made = self._claim_by_fencing(transactional_id, claims, wish)
            attempts.update({each.session_id: each.attempt for each in made})
        return {session_id: attempts[session_id] for session_id in session_ids}

    def _append_claim(self, append: Append) -> Receipt:
        session_id = append.session_id
        self._read_to_end([session_id])
        kept = require_session(self._mirrored, session_id)
        judged = judge_append(append, kept, self._mirrored)
        if isinstance(judged, Receipt):
            return self._mirrored.placed(judged)
        other = self._owner_to_fence(kept)
        if other is None:
            receipt: Receipt = self._ask(lambda committer: committer.stage(append), (session_id,))
            return receipt
        return self._claim_by_fencing(other, [_Claim(kept, append)], None)[0]

    def _claim_of(self, session_id: str, wish: Takeover) -> _Claim:
        kept = require_session(self._mirrored, session_id)
        highest = self._highest_attempt(session_id)
        if wish.stands_on.get(session_id) == kept.line.head:
            wish = wish._replace(stands_on={session_id: self._foot_of(kept)})
        append = claim_append(self._mirrored, kept, wish, self._claimant, highest_attempt=highest)
        judged = judge_append(append, kept, self._mirrored)
        assert isinstance(judged, Accepted), "a minted event id stands already"
        return _Claim(kept, append)

    def _foot_of(self, kept: KeptSession) -> bytes:
        """The event that a claim on the whole line stands on: its head, or the release before it.

        A reader of uncommitted records believes a claim over the release that was never committed,
        and so not a later one that was. Claiming once more, on the release itself and under a
        higher attempt, has both readers agree; nothing is set aside by it but the claim.
        """
        line = kept.line
        step, claim = line.next_step - 1, self._mirrored.claims_of(kept.session_id)[-1]
        if claim.first_step != step or claim.parent_attempt == 0:
            return line.head
        stored = self._mirrored.event_at(kept.number, claim.attempt, step)
        released = self._mirrored.event_at(kept.number, claim.parent_attempt, step - 1)
        if stored is None or released is None:
            return line.head
        body = decode_event(stored.data).body
        if not (isinstance(body, SessionResumed) and body.over_release):
            return line.head
        partition, offset = self._mirror.place_of(released.offset)
        is_settled = not self._mirror.aborted_claims(kept.session_id, partition, offset)
        return line.head if is_settled else released.digest

    def _owner_to_fence(self, kept: KeptSession) -> str | None:
        """The transactional id that must be fenced before the session is claimed; None: none."""
        writer = kept.line.writer
        if kept.line.released or writer == self._claimant.writer_id:
            return None
        if writer is None:
            return unowned_transactional_id(self._client.topic, kept.session_id)
        return writer_transactional_id(self._client.topic, writer)

    def _claim_own(self, append: Append) -> int:
        receipt: Receipt = self._ask(
            lambda committer: committer.stage(append), (append.session_id,)
        )
        return receipt.attempt

    def _claim_released(self, claim: _Claim, wish: Takeover) -> int:
        """Claim over the release; then, as the owner, whatever that was not enough for.

        An earlier step is claimed in this way too: an ordinary claim by who does not own the line
        could set aside what a faster claimant has written.
        """
        session_id, head = claim.kept.session_id, claim.kept.line.head
        at_head = wish._replace(stands_on={session_id: head}, heads={})
        first = self._claim_of(session_id, at_head)
        _require_same_line(first.kept, claim.kept)
        attempt = self._claim_own(first.append)
        self._highest_attempt(session_id)
        kept = require_session(self._mirrored, session_id)
        foot = self._foot_of(kept)
        if wish.stands_on[session_id] != head:
            foot = wish.stands_on[session_id]
        elif foot == kept.line.head:
            return attempt
        again = wish._replace(stands_on={session_id: foot}, heads={})
        return self._claim_own(self._claim_of(session_id, again).append)

    def _claim_by_fencing(
        self, transactional_id: str, claims: Sequence[_Claim], wish: Takeover | None
    ) -> list[Receipt]:
        """One transaction of a producer that fences the owner; made again until it is certain.

        `wish` None: the claims' events are given, and stay as they are.
        """
        was_sent = False
        while True:
            producer = self._client.open_producer(transactional_id)
            try:
                producer.initialise(self._left_s())
                self._read_to_end([claim.kept.session_id for claim in claims])
                receipts = self._standing(claims) if was_sent else None
                if receipts is None:
                    claims = self._still_right(claims, wish, was_sent=was_sent)
                    was_sent = True
                    self._commit(producer, claims)
                    self._read_to_end([claim.kept.session_id for claim in claims])
                    receipts = self._standing(claims)
                    assert receipts is not None, "a committed claim of the fencing producer stands"
                self._forget_lines(claims)
                return receipts
            except RecordsRefused as refused:
                raise as_ours(refused) from refused
            except (BrokersUnavailable, ProducerFenced, ProducerBroken) as fault:
                if self._left_s() <= 0:
                    raise self._unfinished(transactional_id, claims, fault, was_sent) from fault
                if isinstance(fault, ProducerFenced):
                    time.sleep(random.uniform(0, FENCED_WAIT_MAX_S))
            except LogUnavailableError as error:
                raise self._unfinished(transactional_id, claims, error, was_sent) from error
            finally:
                producer.abandon()

    def _still_right(
        self, claims: Sequence[_Claim], wish: Takeover | None, *, was_sent: bool
    ) -> list[_Claim]:
        """The claims, if every line still stands where it was read; of a higher attempt if need be.

        Raises `_LineMovedError`, `FencedError`.
        """
        ready = []
        for claim in claims:
            session_id = claim.kept.session_id
            kept = require_session(self._mirrored, session_id)
            _require_same_line(kept, claim.kept)
            first = claim.append.events[0]
            highest = self._highest_attempt(session_id)
            if first.event.attempt > highest:
                ready.append(claim)
            elif wish is not None:
                ready.append(self._claim_of(session_id, wish))
            elif was_sent and first.event.attempt == highest:
                ready.append(claim)
            else:
                raise FencedError(
                    f"attempt {first.event.attempt} was used by another claim already",
                    hint="read the session again; the attempt of a claim is `next_attempt`",
                    session_id=session_id,
                    step=first.event.step,
                )
        return ready

    def _commit(self, producer: TopicProducer, claims: Sequence[_Claim]) -> None:
        records: list[OutgoingRecord] = []
        for claim in claims:
            partition = self._partition_of(claim.kept.session_id)
            records += [record_of(each, partition) for each in claim.append.events]
        producer.commit(records, max(COMMIT_MIN_S, self._left_s()))

    def _standing(self, claims: Sequence[_Claim]) -> list[Receipt] | None:
        """The claims' receipts, where they were accepted; they are so all, or none."""
        receipts = []
        for claim in claims:
            first, last = claim.append.events[0].event, claim.append.events[-1]
            receipt = self._mirrored.standing_receipt(
                claim.kept.session_id,
                first.step,
                last.event.step,
                last.event.attempt,
                last.digest,
            )
            if receipt is None:
                return None
            receipts.append(receipt)
        return receipts

    def _forget_lines(self, claims: Sequence[_Claim]) -> None:
        names = [claim.kept.session_id for claim in claims]
        self._ask(lambda committer: committer.forget_lines(names))

    def _unfinished(
        self,
        transactional_id: str,
        claims: Sequence[_Claim],
        fault: ClientFault | SteplogError,
        was_sent: bool,
    ) -> SteplogError:
        """At the deadline: what is to be said, and remembered, of a claim without an answer."""
        if not was_sent:
            return as_ours(fault) if isinstance(fault, ClientFault) else fault
        uncertain = {}
        for claim in claims:
            first, last = claim.append.events[0].event, claim.append.events[-1]
            uncertain[claim.kept.session_id] = Wished(
                first.step, last.event.step, last.event.attempt, last.digest, transactional_id
            )
        self._ask(lambda committer: committer.note_uncertain(uncertain))
        return AppendUncertainError(
            f"{fault}: whether the session is claimed is unknown",
            hint="call reconcile for the session before anything else",
            session_id=claims[0].kept.session_id,
        )

    def _contended(self, session_id: str) -> SteplogError:
        kept = self._mirrored.find_session(session_id)
        return FencedError(
            f"others wrote to or claimed the session each of {TRIES_MAX} times it was tried",
            hint="leave it to them, or try again",
            session_id=session_id,
            step=None if kept is None else kept.line.next_step - 1,
        )

    def _highest_attempt(self, session_id: str) -> int:
        with faults_as_ours():
            return self._mirror.highest_attempt(session_id, self._partition_of(session_id))

    def _partition_of(self, session_id: str) -> int:
        require_session_name(session_id)
        return partition_of(session_id, self._mirror.partition_count())

    def _read_to_end(self, session_ids: Sequence[str]) -> None:
        partitions = {self._partition_of(session_id) for session_id in session_ids}
        with faults_as_ours():
            self._mirror.refresh(partitions, timeout_s=max(0.1, self._left_s()))

    def _left_s(self) -> float:
        return self._deadline - time.monotonic()


def _require_same_line(now: KeptSession, then: KeptSession) -> None:
    if (now.line.head, now.line.writer, now.line.released) != (
        then.line.head,
        then.line.writer,
        then.line.released,
    ):
        raise _LineMovedError
