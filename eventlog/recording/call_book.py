"""`CallBook`: which tool calls of a session are open, and which were already answered. Pure.

A result names its call by step, never by `call_id`: real servers reuse one id for every call.
"""

from collections import OrderedDict
from hashlib import sha256
from typing import Final, NamedTuple

from eventlog.content import Content
from eventlog.errors import ConfigError, StepConflictError, StepNotFoundError
from eventlog.event import Event, ToolCalled, ToolReturned

# Answers of calls without a key are remembered only to tell a second answer from a wrong step.
ANSWERED_CALLS_MAX: Final = 1024

KEYED_CALLS_MAX: Final = 1_000_000
"""Calls with an idempotency key in one session, about 300 bytes of memory each; never forgotten."""

_FINGERPRINT_BYTES: Final = 16


class OpenCall(NamedTuple):
    """A call without its return. `started_ns` is the monotonic clock, None after a resume."""

    step: int
    tool: str
    call_id: str | None
    arguments: Content
    effects: str
    idempotency_key: str | None
    started_ns: int | None

    def elapsed_us(self, now_ns: int) -> int:
        """Microseconds since the call was recorded, by the monotonic clock; 0 after a resume."""
        return 0 if self.started_ns is None else (now_ns - self.started_ns) // 1000


class CallBook:
    """Open and keyed calls of the whole session, and the last answers to the others."""

    def __init__(self) -> None:
        self._open: dict[int, OpenCall] = {}
        self._return_step: OrderedDict[int, int] = OrderedDict()
        self._keyed = _KeyedCalls()

    def note_event(self, event: Event) -> None:
        """Take a standing event of the past into the book; other kinds change nothing."""
        if isinstance(event.body, ToolCalled):
            self.note_call(event.step, event.body, None)
        elif isinstance(event.body, ToolReturned):
            self.note_return(event.body.called_step, event.step)

    @property
    def open_calls(self) -> tuple[OpenCall, ...]:
        """The open calls, in the order they were issued."""
        return tuple(self._open.values())

    def note_call(self, step: int, body: ToolCalled, started_ns: int | None) -> None:
        """A call was recorded at `step`."""
        key = body.idempotency_key
        self._open[step] = OpenCall(
            step, body.tool, body.call_id, body.arguments, body.effects, key, started_ns
        )
        if key is not None:
            self._keyed.note_call(key, step, body)

    def note_return(self, called_step: int, step: int) -> None:
        """The call of `called_step` was answered at `step`."""
        self._open.pop(called_step, None)
        if self._keyed.note_return(called_step, step):
            return
        self._return_step[called_step] = step
        if len(self._return_step) > ANSWERED_CALLS_MAX:
            self._return_step.popitem(last=False)

    def retried_call(self, body: ToolCalled) -> int | None:
        """The step of the call that carries this call's idempotency key; None for a new call.

        Raises `StepConflictError` where that call has another tool or other arguments,
        `ConfigError` where the session has no room for one more key.
        """
        key = body.idempotency_key
        return None if key is None else self._keyed.retried_call(key, body)

    def is_keyed(self, called_step: int) -> bool:
        """Whether that call carries an idempotency key."""
        return self._keyed.holds(called_step)

    def return_of(self, called_step: int) -> int | None:
        """The step at which that call was answered, if it was."""
        answered = self._keyed.return_of(called_step)
        return self._return_step.get(called_step) if answered is None else answered

    def open_call(self, called_step: int) -> OpenCall:
        """The open call of that step. Raises `StepConflictError` or `StepNotFoundError`."""
        call = self._open.get(called_step)
        if call is not None:
            return call
        answered = self.return_of(called_step)
        if answered is not None:
            raise StepConflictError(
                f"the call of step {called_step} was answered at step {answered} already",
                hint="record each result once; a retried call carries an idempotency_key",
                expected=called_step,
                actual=answered,
                step=called_step,
            )
        raise StepNotFoundError(
            f"no open call at step {called_step}",
            hint="pass the step that record_tool_call returned",
            step=called_step,
        )


class _Keyed(NamedTuple):
    """A keyed call: what tells it from another call under its key, and its answer's step."""

    fingerprint: bytes
    return_step: int | None


class _KeyedCalls:
    """The calls that carry a key. Keys are held as hashes: they may be of any length."""

    def __init__(self) -> None:
        self._step_of_key: dict[bytes, int] = {}
        self._calls: dict[int, _Keyed] = {}

    def note_call(self, key: str, step: int, body: ToolCalled) -> None:
        # In a line that holds one key twice the first is the call: the later ones are its retries.
        self._step_of_key.setdefault(_hash_of(key), step)
        self._calls[step] = _Keyed(_fingerprint(body), None)

    def note_return(self, called_step: int, step: int) -> bool:
        """Whether the call carries a key; its first answer is the one that counts."""
        call = self._calls.get(called_step)
        if call is not None and call.return_step is None:
            self._calls[called_step] = call._replace(return_step=step)
        return call is not None

    def holds(self, step: int) -> bool:
        return step in self._calls

    def return_of(self, called_step: int) -> int | None:
        call = self._calls.get(called_step)
        return None if call is None else call.return_step

    def retried_call(self, key: str, body: ToolCalled) -> int | None:
        step = self._step_of_key.get(_hash_of(key))
        if step is None:
            if len(self._step_of_key) >= KEYED_CALLS_MAX:
                raise ConfigError(
                    f"the session has {len(self._step_of_key)} calls with an idempotency key, "
                    "and room for no more",
                    hint="leave the key out, or go on in another session",
                )
            return None
        if self._calls[step].fingerprint != _fingerprint(body):
            raise StepConflictError(
                f"the idempotency key {key[:64]!r} belongs to the call of step {step}, which has "
                f"another tool or other arguments than this call of {body.tool!r}",
                hint="give each call a key of its own; a retry repeats tool and arguments",
                expected=step,
                actual=step,
                step=step,
            )
        return step


def _hash_of(key: str) -> bytes:
    return sha256(key.encode("utf-8", "surrogatepass")).digest()[:_FINGERPRINT_BYTES]


def _fingerprint(body: ToolCalled) -> bytes:
    """Of tool and argument bytes; the same whether these stand in the event or in a blob."""
    tool = sha256(body.tool.encode("utf-8", "surrogatepass")).digest()
    return sha256(tool + body.arguments.digest).digest()[:_FINGERPRINT_BYTES]
