"""`CallBook`: which tool calls of a session are open, and which were already answered. Pure.

A result names its call by step, never by `call_id`: real servers reuse one id for every call.
"""

from collections import OrderedDict
from typing import Final, NamedTuple, TypeVar

from eventlog.content import Content
from eventlog.errors import StepConflictError, StepNotFoundError
from eventlog.event import Event, ToolCalled, ToolReturned

_Key = TypeVar("_Key")

# Answered calls are remembered for retries only; the log's own search by id looks as far back.
ANSWERED_CALLS_MAX: Final = 1024


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
    """Open calls by step, and the last answered ones by step and by idempotency key."""

    def __init__(self) -> None:
        self._open: dict[int, OpenCall] = {}
        self._return_step: OrderedDict[int, int] = OrderedDict()
        self._call_of_key: OrderedDict[str, int] = OrderedDict()

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
            _remember(self._call_of_key, key, step)

    def note_return(self, called_step: int, step: int) -> None:
        """The call of `called_step` was answered at `step`."""
        self._open.pop(called_step, None)
        _remember(self._return_step, called_step, step)

    def call_of_key(self, key: str) -> int | None:
        """The step of the call that carries this idempotency key."""
        return self._call_of_key.get(key)

    def is_keyed(self, called_step: int) -> bool:
        """Whether that call carries an idempotency key."""
        return called_step in self._call_of_key.values()

    def return_of(self, called_step: int) -> int | None:
        """The step at which that call was answered, if it was."""
        return self._return_step.get(called_step)

    def open_call(self, called_step: int) -> OpenCall:
        """The open call of that step. Raises `StepConflictError` or `StepNotFoundError`."""
        call = self._open.get(called_step)
        if call is not None:
            return call
        answered = self._return_step.get(called_step)
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


def _remember(book: "OrderedDict[_Key, int]", key: _Key, step: int) -> None:
    book[key] = step
    if len(book) > ANSWERED_CALLS_MAX:
        book.popitem(last=False)
