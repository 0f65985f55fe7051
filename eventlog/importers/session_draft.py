"""`SessionDraft`: a session as a trace tells it, and its events as one atomic batch.

Parsers fill a `DraftBuilder`; `encode_draft` makes the batch, from the seed to a close `imported`.
All is taken from the record: ids from the key `import:<ordinal>`, the time from the trace or 0,
no writer. So one record gives the same bytes in every log. Pure but for the blobs it puts.
"""

import unicodedata
from collections import deque
from collections.abc import Callable
from hashlib import sha256
from typing import Final, NamedTuple

from eventlog.actors import actor_of_role
from eventlog.codec import EncodedEvent, fit_event
from eventlog.content import BlobRef, Content
from eventlog.event import (
    Annotated,
    Body,
    Event,
    LineHead,
    MessageAdded,
    SessionClosed,
    SessionSeeded,
    StateChange,
    StateUnknown,
    ToolCalled,
    ToolReturned,
    Verified,
)
from eventlog.ids import event_id_from_key
from eventlog.importers.json_spans import JsonNode
from eventlog.merkle_root import MerkleRoot

IMPORT_FINGERPRINT: Final = "import"
IMPORTED: Final = "imported"
RECORD_DIGEST_KEY: Final = "record_sha256"

# Leaves room in a session id's 255 bytes for the format, the digest and a repeat's number.
TASK_BYTES_MAX: Final = 160

# A seed's strings and maps have 64 KiB: this leaves room for all others of a usual trace.
SEED_TASK_BYTES_MAX: Final = 48 * 1024

# A trace does not say how a tool was reached.
TRANSPORT_UNKNOWN: Final = "unknown"


class DraftEvent(NamedTuple):
    """One event to be: all but its place in the line."""

    body: Body
    actor: str
    state_change: StateChange | StateUnknown | None = None


class SessionDraft(NamedTuple):
    """A record's session before it has an id. `time` in microseconds UTC, 0 where unknown.

    `task` is the part of the session id that names the task; `state` the state coverage.
    """

    task: str
    events: tuple[DraftEvent, ...]
    time: int
    state: str
    warnings: tuple[str, ...]


class DraftBuilder:
    """Collects a session's events in their order; pairs results with calls, first in, first out."""

    def __init__(
        self, seeded: SessionSeeded, state_change: StateChange | StateUnknown | None = None
    ) -> None:
        """Begin with the seed; importer's fingerprint and no writer are filled in here."""
        self._events: list[DraftEvent] = []
        self._open: dict[str | None, deque[int]] = {}
        self._warnings: list[str] = []
        self._task = task_part(seeded.task_id)
        task_id = self._fit_task_id(seeded.task_id)
        self._seeded = seeded._replace(task_id=task_id, fingerprint=IMPORT_FINGERPRINT, writer=None)
        self.add(self._seeded, "system", state_change)

    def add(
        self, body: Body, actor: str, state_change: StateChange | StateUnknown | None = None
    ) -> int:
        """Add an event; returns its step."""
        self._events.append(DraftEvent(body, actor, state_change))
        return len(self._events) - 1

    def add_message(
        self,
        role: str,
        content: Content,
        *,
        policy: str | None = None,
        finish_reason: str | None = None,
    ) -> int:
        """Add a message; returns its step."""
        body = MessageAdded(
            role,
            content,
            policy_first=policy,
            policy_last=policy,
            finish_reason=finish_reason,
        )
        return self.add(body, actor_of_role(role))

    def add_call(
        self, tool: str, arguments: Content, *, call_id: str | None, policy: str | None = None
    ) -> int:
        """Add a call, open until its result; returns its step."""
        body = ToolCalled(
            self._name(tool, "tool"),
            arguments,
            call_id=None if call_id is None else self._name(call_id, "call_id"),
            transport=TRANSPORT_UNKNOWN,
            policy=policy,
        )
        step = self.add(body, "agent")
        self._open.setdefault(call_id, deque()).append(step)
        return step

    def add_result(
        self,
        call_id: str | None,
        result: Content,
        *,
        source: JsonNode,
        duration_us: int = 0,
        actor: str = "tool",
        state_change: StateChange | StateUnknown | None = None,
    ) -> int:
        """Add the result of the first open call of that id; returns its step.

        Call ids are not unique, so the id alone never decides. A result without an open call is
        warned of, and `source`, the part of the record that told it, annotated as exact JSON.
        """
        waiting = self._open.get(call_id)
        if not waiting:
            step = self.annotate("unpaired_result", Content.of_json_text(source.text))
            self.warn(f"step {step}: a result for call id {call_id!r} has no open call")
            return step
        called_step = waiting.popleft()
        body = ToolReturned(called_step, "ok", result, duration_us=duration_us)
        return self.add(body, actor, state_change)

    def annotate(self, name: str, value: Content, *, about_step: int | None = None) -> int:
        """Add a note; returns its step."""
        return self.add(Annotated(name, value, about_step), "system")

    def annotate_rest(self, name: str, text: str) -> None:
        """Note the exact JSON of what no event holds; nothing where nothing is left."""
        if text not in ("{}", "[]"):
            self.annotate(name, Content.of_json_text(text))

    def add_verified(self, body: Verified) -> int:
        """Add a verification; returns its step."""
        return self.add(body, "verifier")

    def warn(self, text: str) -> None:
        """Tell of something odd in the record; the session is imported all the same."""
        self._warnings.append(text)

    def tool_of(self, step: int) -> str | None:
        """The tool that the result at `step` answers; None where it answers none."""
        body = self._events[step].body
        if not isinstance(body, ToolReturned):
            return None
        called = self._events[body.called_step].body
        assert isinstance(called, ToolCalled)
        return called.tool

    def finish(self, *, time: int = 0) -> SessionDraft:
        """The draft; calls still open are warned of."""
        left = sorted(step for steps in self._open.values() for step in steps)
        if left:
            steps = ", ".join(map(str, left[:10])) + (", ..." if len(left) > 10 else "")
            self.warn(f"calls without a result, which stay open: {len(left)} (steps {steps})")
        task = self._task
        if task != self._seeded.task_id and self._seeded.task_id:
            self.warn(f"the task id does not fit a session id, which has {task!r} in its place")
        return SessionDraft(
            task, tuple(self._events), time, self._seeded.state_coverage, tuple(self._warnings)
        )

    def _fit_task_id(self, task_id: str) -> str:
        """The task id as a seed holds it: whole, unless it is longer than its room there."""
        fit = self._name(task_id, "task_id").encode()
        if len(fit) <= SEED_TASK_BYTES_MAX:
            return fit.decode()
        self.warn(f"the task id has {len(fit)} bytes; the seed has the first {SEED_TASK_BYTES_MAX}")
        return fit[:SEED_TASK_BYTES_MAX].decode("utf-8", "ignore")

    def _name(self, text: str, field: str) -> str:
        """Envelope text is UTF-8: a lone surrogate is stored as its escape, and warned of."""
        fit = text.encode("utf-8", "backslashreplace").decode()
        if fit != text:
            self.warn(f"step {len(self._events)}: lone surrogates in {field} are escaped: {fit!r}")
        return fit


def encode_draft(
    draft: SessionDraft,
    session_id: str,
    record: bytes,
    put_blob: Callable[[bytes], BlobRef],
) -> list[EncodedEvent]:
    """The batch: every event of the draft, then the close with their count and Merkle root.

    `record` is the trace's exact bytes; its SHA-256 stands in the seed. Blobs are put before the
    batch is returned. Raises `ValueNotEncodableError`, `EventTooLargeError`.
    """
    head = LineHead.before_seed(session_id)
    root = MerkleRoot()
    batch: list[EncodedEvent] = []
    for item in (*_with_record_digest(draft.events, record), None):
        if item is None:
            item = DraftEvent(SessionClosed(IMPORTED, root.count, root.root()), "system")
        event = Event.following(
            head,
            item.body,
            event_id=event_id_from_key(session_id, f"import:{head.step + 1}"),
            time=draft.time,
            actor=item.actor,
            state_change=item.state_change,
        )
        encoded = fit_event(event, put_blob)
        root.add(encoded.data)
        head = LineHead(session_id, event.step, event.attempt, encoded.digest)
        batch.append(encoded)
    return batch


def session_id_of(format_name: str, task: str, record: bytes, repeat: int) -> str:
    """`<format>/<task>/<12 hex of the record's SHA-256>`, `~2` for a file's second such record."""
    made = f"{format_name}/{task}/{sha256(record).hexdigest()[:12]}"
    return made if repeat == 1 else f"{made}~{repeat}"


def task_part(task_id: str) -> str:
    """How a task id stands in a session id: as it is, if it can.

    `-` for none. Control characters, lone surrogates or more than `TASK_BYTES_MAX` bytes do not
    fit a session id: then `task-` and 16 hex of its SHA-256.
    """
    if not task_id:
        return "-"
    raw = task_id.encode("utf-8", "surrogatepass")
    if len(raw) <= TASK_BYTES_MAX and not any(
        unicodedata.category(char) in ("Cc", "Cs") for char in task_id
    ):
        return task_id
    return f"task-{sha256(raw).hexdigest()[:16]}"


def text_or_json(node: JsonNode) -> Content:
    """A str as text, any other value as its exact JSON."""
    if isinstance(node.value, str):
        return Content.of_text(node.value)
    return Content.of_json_text(node.text)


def arguments_of(node: JsonNode) -> Content:
    """A call's arguments: a str is JSON text as it was received, other values their exact JSON."""
    return Content.of_json_text(node.value if isinstance(node.value, str) else node.text)


def name_of(node: JsonNode | None) -> str:
    """An id as text: a str as it is, an integer in decimal, anything else as none."""
    if node is None or isinstance(node.value, bool):
        return ""
    return str(node.value) if isinstance(node.value, str | int) else ""


def index_of(node: JsonNode | None) -> int | None:
    """An index: a whole number that an Avro int holds, anything else as none."""
    if node is None or isinstance(node.value, bool) or not isinstance(node.value, int):
        return None
    return node.value if 0 <= node.value < 2**31 else None


def reward_of(node: JsonNode) -> float | None:
    """A reward: NaN and infinities as the trace has them. Raises `ImportFormatError`."""
    if node.is_null:
        return None
    if isinstance(node.value, bool) or not isinstance(node.value, int | float):
        raise node.wrong("a number or null")
    try:
        return float(node.value)
    except OverflowError:
        raise node.wrong("a number that a double holds") from None


def _with_record_digest(events: tuple[DraftEvent, ...], record: bytes) -> tuple[DraftEvent, ...]:
    seed = events[0]
    assert isinstance(seed.body, SessionSeeded)
    metadata = {**seed.body.metadata, RECORD_DIGEST_KEY: sha256(record).hexdigest()}
    return (seed._replace(body=seed.body._replace(metadata=metadata)), *events[1:])
