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

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol

from eventlog.errors import FencedError, SteplogError
from eventlog.event import SessionResumed
from eventlog.kafka.claim_making import (
    ClaimMaker,
    LineMovedError,
    PreparedClaim,
    require_same_line,
)
from eventlog.kafka.client import TopicClient
from eventlog.kafka.committer import KafkaCommitter
from eventlog.kafka.fencing import ClaimsBeside, Fencing
from eventlog.kafka.topic_writer import unowned_transactional_id, writer_transactional_id
from eventlog.keeping.append_rule import Append, judge_append
from eventlog.keeping.claims import Claimant, Takeover, require_session
from eventlog.keeping.kept_rows import KeptSession
from eventlog.log import Receipt
from eventlog.mirror import Mirror

TRIES_MAX: Final = 8
"""How often a claim is made anew because the line moved meanwhile, before it is given up."""


class Ask(Protocol):
    """Runs something in the writer's thread, after all that was submitted before."""

    def __call__(
        self, run: Callable[[KafkaCommitter], Any], session_ids: tuple[str, ...] = ()
    ) -> Any: ...


class Claiming:
    """Makes claims for one writer."""

    def __init__(
        self,
        client: TopicClient,
        mirror: Mirror,
        claimant: Claimant,
        ask: Ask,
        writer: ClaimsBeside,
        *,
        deadline_s: float,
    ) -> None:
        self._client = client
        self._claimant = claimant
        self._ask = ask
        self._deadline_s = deadline_s
        self._maker = ClaimMaker(mirror, claimant)
        self._fencing = Fencing(client, self._maker, writer)
        self._lock = threading.Lock()

    def take_over(self, wish: Takeover) -> dict[str, int]:
        """Claim the sessions; the new attempt of each. Raises as `EventLog.take_over`.

        All are judged before any is claimed. The claims of one owner are one transaction; where
        sessions of several owners are asked for, a failure may come when some are claimed already.
        """
        session_ids = tuple(dict.fromkeys(wish.session_ids))
        with self._lock:
            self._begin(session_ids)
            attempts: dict[str, int] = {}
            for _ in range(TRIES_MAX):
                # What was claimed by the try before is claimed.
                missing = [each for each in session_ids if each not in attempts]
                with suppress(LineMovedError):
                    self._take_over(missing, wish, attempts)
                    return {session_id: attempts[session_id] for session_id in session_ids}
            raise self._contended(session_ids[0])

    def append_claim(self, append: Append) -> Receipt:
        """Append a batch that begins with `session_resumed`, fencing the owner where there is one.

        Raises as `EventLog.append_events`.
        """
        session_id = append.session_id
        with self._lock:
            self._begin((session_id,))
            for _ in range(TRIES_MAX):
                with suppress(LineMovedError):
                    return self._append_claim(append)
            raise self._contended(session_id)

    def next_attempt(self, session_id: str) -> int:
        """One above the highest attempt that was ever sent for the session."""
        return 1 + self._maker.highest_attempt(session_id, self._deadline_s)

    def _begin(self, session_ids: tuple[str, ...]) -> None:
        self._maker.begin(time.monotonic() + self._deadline_s)
        # What this writer has submitted for them comes first; and none may be uncertain.
        self._ask(lambda _: None, session_ids)

    def _take_over(
        self, session_ids: Sequence[str], wish: Takeover, attempts: dict[str, int]
    ) -> None:
        """Claim these, and note the attempt of each that is claimed."""
        self._maker.read_to_end(session_ids)
        wanted = [self._maker.claim_of(session_id, wish) for session_id in session_ids]
        fenced: dict[str, list[PreparedClaim]] = {}
        for claim in wanted:
            other = self._owner_to_fence(claim.kept)
            if other is not None:
                fenced.setdefault(other, []).append(claim)
            elif claim.kept.line.released:
                attempts[claim.kept.session_id] = self._claim_released(claim, wish)
            else:
                attempts[claim.kept.session_id] = self._claim_own(claim.append)
        for transactional_id, claims in fenced.items():
            made = self._fencing.claim(transactional_id, claims, wish)
            attempts.update({each.session_id: each.attempt for each in made})

    def _append_claim(self, append: Append) -> Receipt:
        session_id = append.session_id
        self._maker.read_to_end([session_id])
        kept = require_session(self._maker.mirrored, session_id)
        judged = judge_append(append, kept, self._maker.mirrored)
        if isinstance(judged, Receipt):
            return self._maker.mirrored.placed(judged)
        self._require_own_name(append)
        other = self._owner_to_fence(kept)
        if other is None:
            receipt: Receipt = self._ask(lambda committer: committer.stage(append), (session_id,))
            return receipt
        return self._fencing.claim(other, [PreparedClaim(kept, append)], None)[0]

    def _require_own_name(self, append: Append) -> None:
        """A claim for somebody else would fence the owner, and leave the line to nobody here."""
        body = append.events[0].event.body
        writer = body.writer if isinstance(body, SessionResumed) else None
        if writer != self._claimant.writer_id:
            raise FencedError(
                f"the claim names the writer {writer}, and this handle is another",
                hint="make the claim with the log handle's own writer_id",
                session_id=append.session_id,
                step=append.expected_step,
            )

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

    def _claim_released(self, claim: PreparedClaim, wish: Takeover) -> int:
        """Claim over the release; then, as the owner, whatever that was not enough for.

        An earlier step is claimed in this way too: an ordinary claim by who does not own the line
        could set aside what a faster claimant has written.
        """
        session_id, head = claim.kept.session_id, claim.kept.line.head
        at_head = wish._replace(stands_on={session_id: head}, heads={})
        first = self._maker.claim_of(session_id, at_head)
        require_same_line(first.kept, claim.kept)
        attempt = self._claim_own(first.append)
        self._maker.highest_attempt_in_time(session_id)
        kept = require_session(self._maker.mirrored, session_id)
        foot = self._maker.foot_of(kept)
        if wish.stands_on[session_id] != head:
            foot = wish.stands_on[session_id]
        elif foot == kept.line.head:
            return attempt
        again = wish._replace(stands_on={session_id: foot}, heads={})
        return self._claim_own(self._maker.claim_of(session_id, again).append)

    def _contended(self, session_id: str) -> SteplogError:
        kept = self._maker.mirrored.find_session(session_id)
        return FencedError(
            f"others wrote to or claimed the session each of {TRIES_MAX} times it was tried",
            hint="leave it to them, or try again",
            session_id=session_id,
            step=None if kept is None else kept.line.next_step - 1,
        )
