"""Builders of events for tests: random ones of every kind, and valid chains of encoded ones."""

import hashlib
import math
import random
from collections.abc import Callable, Mapping
from typing import Any, Final

from eventlog.codec import EncodedEvent, encode_event
from eventlog.content import APPLICATION_JSON, CANONICAL_VALUE, TEXT_PLAIN, BlobRef, Content
from eventlog.event import (
    BODY_OF_KIND,
    FIRST_ATTEMPT,
    Annotated,
    Body,
    CheckpointBegun,
    CheckpointCommitted,
    EffectRecorded,
    Event,
    GapObserved,
    LineHead,
    MessageAdded,
    Restore,
    SessionClosed,
    SessionForked,
    SessionLost,
    SessionReleased,
    SessionResumed,
    SessionSeeded,
    StateChange,
    StateChanged,
    StateUnknown,
    SubjectErased,
    ToolCalled,
    ToolReturned,
    Trace,
    Verified,
)

KINDS: Final = tuple(BODY_OF_KIND)
TEXTS: Final = ("", "a", "task-17/seed-3", "naïve ☃ \U0001f600", "line\nend\t\x00", "x" * 200)
FLOATS: Final = (0.0, -0.0, 1.0, 0.1, 5e-324, 1.7976931348623157e308, math.inf, -math.inf, math.nan)
LONGS: Final = (0, 1, -1, 63, 64, -64, -65, 8191, 8192, 2**31, -(2**63), 2**63 - 1)


def random_event(rng: random.Random, kind: str | None = None) -> Event:
    """A well-formed event, of `kind` or of any; equal rng state gives an equal event."""
    kind = kind or rng.choice(KINDS)
    return Event(
        event_id=rng.randbytes(16),
        session_id=rng.choice(("s", "task-17/seed-3", "é" * 127, "x" * 255)),
        step=rng.choice((0, 1, 63, 64, rng.randrange(100_000), 2**63 - 1)),
        attempt=rng.choice((1, 2, 2**31 - 1)),
        kind=kind,
        parent=rng.randbytes(32),
        state_change=_state_change(rng),
        time=rng.choice((0, 1_700_000_000_000_000, _long(rng))),
        actor=rng.choice(("agent", "tool:calculator", "system")),
        trace=_maybe(rng, _trace),
        body=_BODY_BUILDERS[kind](rng),
    )


def random_body(rng: random.Random, kind: str) -> Body:
    """A well-formed body of `kind`."""
    return _BODY_BUILDERS[kind](rng)


def merkle_root(leaves: list[bytes]) -> bytes:
    """The RFC 6962 root over `leaves` (plain recursion, as the RFC states it)."""
    if not leaves:
        return hashlib.sha256(b"").digest()
    if len(leaves) == 1:
        return hashlib.sha256(b"\x00" + leaves[0]).digest()
    split = 1 << (len(leaves) - 1).bit_length() - 1
    left, right = merkle_root(leaves[:split]), merkle_root(leaves[split:])
    return hashlib.sha256(b"\x01" + left + right).digest()


class EventChain:
    """Makes one session's events, each standing on the one before; `head` and `events` say where.

    Ids are random from `seed`, times count up by 1,000 microseconds: equal arguments give equal
    bytes.
    """

    def __init__(self, session_id: str, seed: int = 0) -> None:
        self.session_id = session_id
        self.rng = random.Random(f"{session_id}/{seed}")
        self.head = LineHead.before_seed(session_id)
        self.events: list[EncodedEvent] = []
        self.time = 1_700_000_000_000_000

    def append(
        self,
        body: Body,
        *,
        state_change: StateChange | StateUnknown | None = None,
        actor: str = "system",
    ) -> EncodedEvent:
        """The next event of the line, with any body."""
        self.time += 1_000
        event = Event.following(
            self.head,
            body,
            event_id=self.rng.randbytes(16),
            time=self.time,
            actor=actor,
            state_change=state_change,
        )
        encoded = encode_event(event)
        self.events.append(encoded)
        self.head = LineHead(self.session_id, event.step, event.attempt, encoded.digest)
        return encoded

    def seed(self, environment: str = "desk", **fields: Any) -> EncodedEvent:
        """`session_seeded`; fields of the body by name."""
        return self.append(SessionSeeded(environment, **fields))

    def call(self, tool: str = "lookup", **fields: Any) -> EncodedEvent:
        """`tool_called`, its arguments JSON text unless given."""
        fields.setdefault("arguments", Content(APPLICATION_JSON, b'{"order":"A1"}'))
        return self.append(ToolCalled(tool, **fields), actor="agent")

    def returned(
        self,
        called_step: int | None = None,
        status: str = "ok",
        *,
        state_change: StateChange | StateUnknown | None = None,
        **fields: Any,
    ) -> EncodedEvent:
        """`tool_returned` for the call at `called_step`, the last event unless given."""
        called = self.head.step if called_step is None else called_step
        fields.setdefault("result", Content(TEXT_PLAIN, b"done"))
        body = ToolReturned(called, status, **fields)
        return self.append(body, state_change=state_change, actor="tool")

    def verified(self, reward: float | None = 1.0, **fields: Any) -> EncodedEvent:
        """`verified` with this reward."""
        fields.setdefault("verifier", "desk-rules")
        return self.append(Verified(reward=reward, **fields), actor="verifier")

    def closed(self, reason: str = "done", **fields: Any) -> EncodedEvent:
        """`session_closed` with the count and root over the own standing events before it."""
        leaves = [encoded.data for encoded in self.events]
        return self.append(SessionClosed(reason, len(leaves), merkle_root(leaves), **fields))

    def resumed(
        self,
        from_head: LineHead | None = None,
        attempt: int | None = None,
        *,
        reason: str = "test",
        **fields: Any,
    ) -> EncodedEvent:
        """`session_resumed` after `from_head` (the head unless given); later events are dropped."""
        base = from_head or self.head
        claim = self.head.attempt + 1 if attempt is None else attempt
        self.events = [each for each in self.events if each.event.step <= base.step]
        self.head = LineHead(self.session_id, base.step, claim, base.digest)
        return self.append(SessionResumed(base.step, reason, **fields))

    def forked(self, parent_head: LineHead, **fields: Any) -> EncodedEvent:
        """`session_forked` as this session's first event, standing on `parent_head`."""
        self.head = LineHead(self.session_id, parent_head.step, FIRST_ATTEMPT, parent_head.digest)
        return self.append(SessionForked(parent_head.session_id, parent_head.step, **fields))


def _maybe(rng: random.Random, build: Callable[[random.Random], Any]) -> Any:
    return build(rng) if rng.random() < 0.5 else None


def _text(rng: random.Random) -> str:
    if rng.random() < 0.5:
        return rng.choice(TEXTS)
    return "".join(rng.choice("A\x7fé\u2028\ud7ff\ue000\U0010ffff") for _ in range(5))


def _long(rng: random.Random) -> int:
    return rng.choice(LONGS) if rng.random() < 0.5 else rng.randrange(-(2**40), 2**40)


def _step(rng: random.Random) -> int:
    return rng.choice((0, 1, 63, 64, 100_000))


def _float(rng: random.Random) -> float:
    return rng.choice(FLOATS) if rng.random() < 0.5 else rng.uniform(-1, 1)


def _flag(rng: random.Random) -> bool:
    return rng.random() < 0.5


def _content(rng: random.Random) -> Content:
    media_type = rng.choice((APPLICATION_JSON, TEXT_PLAIN, CANONICAL_VALUE, "x/y;redacted=1"))
    if rng.random() < 0.2:
        return Content(media_type, BlobRef(rng.randbytes(32), rng.randrange(2**40)))
    return Content(media_type, rng.randbytes(rng.choice((0, 1, 63, 64, 200, 9000))))


def _trace(rng: random.Random) -> Trace:
    parent = rng.randbytes(8) if rng.random() < 0.5 else None
    return Trace(rng.randbytes(16), rng.randbytes(8), parent)


def _state_change(rng: random.Random) -> StateChange | StateUnknown | None:
    pick = rng.randrange(3)
    if pick == 0:
        return None
    if pick == 1:
        return StateChange(_content(rng), rng.randbytes(32))
    return StateUnknown(_text(rng))


def _map(rng: random.Random, value: Callable[[random.Random], Any]) -> Mapping[str, Any]:
    return {_text(rng): value(rng) for _ in range(rng.choice((0, 1, 3, 70)))}


def _seeded(rng: random.Random) -> SessionSeeded:
    return SessionSeeded(
        environment=_text(rng),
        environment_version=_text(rng),
        fingerprint=_text(rng),
        task_id=_text(rng),
        seed=_maybe(rng, _long),
        request=_maybe(rng, _content),
        response=_maybe(rng, _content),
        tools=_maybe(rng, _content),
        reducer=_text(rng),
        reducer_version=_text(rng),
        initial_state=_maybe(rng, _content),
        state_coverage=rng.choice(("full", "partial", "none")),
        excluded_paths=tuple(_text(rng) for _ in range(rng.randrange(4))),
        policy=_maybe(rng, _text),
        writer=_maybe(rng, _text),
        parent_session=_maybe(rng, _text),
        training_session=_maybe(rng, _text),
        training_step=_maybe(rng, _long),
        sample_id=_maybe(rng, _text),
        group_id=_maybe(rng, _text),
        rollout_index=_maybe(rng, _long),
        split=_maybe(rng, _text),
        metadata=_map(rng, _text),
    )


def _called(rng: random.Random) -> ToolCalled:
    return ToolCalled(
        tool=_text(rng),
        arguments=_content(rng),
        call_id=_maybe(rng, _text),
        transport=_text(rng),
        effects=rng.choice(("pure", "idempotent", "external", "unknown")),
        policy=_maybe(rng, _text),
        idempotency_key=_maybe(rng, _text),
    )


def _returned(rng: random.Random) -> ToolReturned:
    return ToolReturned(
        called_step=_step(rng),
        status=rng.choice(("ok", "error", "timeout", "cancelled", "invalid", "interrupted")),
        result=_maybe(rng, _content),
        error_type=_maybe(rng, _text),
        duration_us=_long(rng),
        reward=_maybe(rng, _float),
        terminated=_maybe(rng, _flag),
        truncated=_maybe(rng, _flag),
        duplicate_of=_maybe(rng, _step),
    )


def _verified(rng: random.Random) -> Verified:
    return Verified(
        verifier=_text(rng),
        verifier_version=_text(rng),
        reward=_maybe(rng, _float),
        components=_map(rng, _float),
        input=_maybe(rng, _content),
        output=_maybe(rng, _content),
        mask_sample=_flag(rng),
        failure_kind=_maybe(rng, _text),
        about_step=_maybe(rng, _step),
        supersedes_step=_maybe(rng, _step),
        duration_us=_long(rng),
    )


def _message(rng: random.Random) -> MessageAdded:
    return MessageAdded(
        role=_text(rng),
        content=_content(rng),
        request=_maybe(rng, _content),
        tokens=_maybe(rng, _content),
        logprobs=_maybe(rng, _content),
        token_mask=_maybe(rng, _content),
        policy_first=_maybe(rng, _text),
        policy_last=_maybe(rng, _text),
        finish_reason=_maybe(rng, _text),
        tokens_in=_maybe(rng, _long),
        tokens_out=_maybe(rng, _long),
        duration_us=_maybe(rng, _long),
    )


def _resumed(rng: random.Random) -> SessionResumed:
    return SessionResumed(
        from_step=_step(rng),
        reason=_text(rng),
        writer=_maybe(rng, _text),
        over_release=_flag(rng),
        snapshot_step=_maybe(rng, _step),
        restore=_maybe(rng, lambda r: Restore(_text(r), r.randrange(1, 2**31))),
    )


def _closed(rng: random.Random) -> SessionClosed:
    return SessionClosed(_text(rng), _step(rng), rng.randbytes(32), _maybe(rng, _text))


_BODY_BUILDERS: Final[Mapping[str, Callable[[random.Random], Body]]] = {
    "session_seeded": _seeded,
    "tool_called": _called,
    "tool_returned": _returned,
    "verified": _verified,
    "message_added": _message,
    "effect_recorded": lambda rng: EffectRecorded(
        rng.choice(("clock", "random", "id", "network", "other")), _text(rng), _content(rng)
    ),
    "state_changed": lambda rng: StateChanged(_text(rng)),
    "annotated": lambda rng: Annotated(_text(rng), _content(rng), _maybe(rng, _step)),
    "session_forked": lambda rng: SessionForked(
        _text(rng), _step(rng), _maybe(rng, _text), _map(rng, _text)
    ),
    "session_resumed": _resumed,
    "session_released": lambda rng: SessionReleased(_maybe(rng, _text)),
    "session_closed": _closed,
    "session_lost": lambda rng: SessionLost(_text(rng)),
    "checkpoint_begun": lambda rng: CheckpointBegun(_text(rng), _step(rng), _map(rng, _long)),
    "checkpoint_committed": lambda rng: CheckpointCommitted(rng.randbytes(32), _step(rng)),
    "gap_observed": lambda rng: GapObserved(_text(rng)),
    "subject_erased": lambda rng: SubjectErased(_text(rng), _text(rng)),
}
