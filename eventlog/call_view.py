"""The calls of a session as rows: a call and its return, two events of the log, told as one line.

A return names its call by step. Call ids pair nothing: real servers give one id to many calls. Used
by the views of a session; arguments and results stay `Content`: fetching is the caller's. Pure.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from eventlog.content import Content
from eventlog.event import Event, ToolCalled, ToolReturned

OPEN_STATUS: Final = "open"


class CallRow(NamedTuple):
    """One tool call. An open call has no `return_step`, and its status is `open`.

    `session_id` is that of the call's own event: for a branch's prefix, the parent session's.
    Times in microseconds UTC; `duration_us` from the monotonic clock of the process that called.
    `duplicate_of` names the return that this one only repeats: it was not applied again.
    """

    session_id: str
    call_step: int
    return_step: int | None
    tool: str
    call_id: str | None
    status: str
    arguments: Content
    result: Content | None
    reward: float | None
    duration_us: int | None
    error_type: str | None
    effects: str
    policy: str | None
    actor: str
    call_time: int
    return_time: int | None
    duplicate_of: int | None


def pair_calls(events: Iterable[Event]) -> Iterator[CallRow]:
    """A row for each call among the standing events of a line, given from its first step on.

    Rows come as the calls return, then the open ones in the order they were made: so no more is
    held than the calls that are open at one time. `sorted(rows, key=in_order_made)` gives the
    order of the calls. A call is answered once: a further return that names it changes no row.
    """
    calls: dict[int, CallRow] = {}
    for event in events:
        body = event.body
        if isinstance(body, ToolCalled):
            calls[event.step] = _open_row(event, body)
        elif isinstance(body, ToolReturned):
            row = calls.pop(body.called_step, None)
            if row is not None:
                yield _answered_row(row, event, body)
    yield from calls.values()


def in_order_made(row: CallRow) -> int:
    """A sort key: the order in which the calls were made."""
    return row.call_step


def _open_row(event: Event, call: ToolCalled) -> CallRow:
    return CallRow(
        session_id=event.session_id,
        call_step=event.step,
        return_step=None,
        tool=call.tool,
        call_id=call.call_id,
        status=OPEN_STATUS,
        arguments=call.arguments,
        result=None,
        reward=None,
        duration_us=None,
        error_type=None,
        effects=call.effects,
        policy=call.policy,
        actor=event.actor,
        call_time=event.time,
        return_time=None,
        duplicate_of=None,
    )


def _answered_row(row: CallRow, event: Event, answer: ToolReturned) -> CallRow:
    return row._replace(
        return_step=event.step,
        status=answer.status,
        result=answer.result,
        reward=answer.reward,
        duration_us=answer.duration_us,
        error_type=answer.error_type,
        return_time=event.time,
        duplicate_of=answer.duplicate_of,
    )
