"""Reducers: pure functions from (state, event) to the next state, and their registry.

Two ship with the package: `captured` applies the patches that events carry; `transcript` builds the
dialog, calls and rewards of sessions recorded without a state. A reducer is named in the session's
seed and found here by that name and version; a stored name never imports anything.
"""

import json
from bisect import bisect_left
from collections.abc import Callable, Mapping
from decimal import Decimal
from hashlib import sha256
from typing import Final, NamedTuple, Protocol, cast

from eventlog.canonical import decode
from eventlog.content import BlobRef, Content, JsonText, is_json_text, read_content
from eventlog.errors import ConfigError, ReducerMissingError, ReducerVersionError
from eventlog.event import (
    Event,
    MessageAdded,
    SessionClosed,
    SessionForked,
    SessionResumed,
    SessionSeeded,
    StateChange,
    ToolCalled,
    ToolReturned,
    Verified,
)
from eventlog.state_patch import apply

# Content above this size stands in a transcript as its blob's digest, so that a transcript's
# size follows the dialog and not the tools' output.
TRANSCRIPT_CONTENT_BYTES_MAX: Final = 4096
_DIGITS_ALWAYS_READ: Final = 640

FetchContent = Callable[[Content], bytes]


class Reducer(Protocol):
    """Builds a session's state from its events. Pure; a state is a value with a canonical form.

    `begin` gives the state after the seed; `apply_event` the state after one later event, and may
    reuse the state it is given. `fetch` returns a content's bytes, from the blob store if need be.
    A replay from a snapshot goes on with what `decode` makes of the state's bytes.
    """

    name: str
    version: str

    def begin(self, seed: Event, fetch: FetchContent) -> object:
        """The state after the session's first event."""
        ...

    def apply_event(self, state: object, event: Event, fetch: FetchContent) -> object:
        """The state after `event`."""
        ...


class CapturedReducer:
    """Applies each event's patch to the state; needs none of the environment's code."""

    name = "captured"
    version = "1"

    def begin(self, seed: Event, fetch: FetchContent) -> object:
        """The recorded initial state; None where there is none."""
        if not isinstance(seed.body, SessionSeeded) or seed.body.initial_state is None:
            return None
        content = seed.body.initial_state
        return read_content(content.media_type, fetch(content), opaque=True)

    def apply_event(self, state: object, event: Event, fetch: FetchContent) -> object:
        """The state after the event's `state_change`; events without one leave it as it is."""
        change = event.state_change
        return apply_change(state, change, fetch) if isinstance(change, StateChange) else state


def apply_change(state: object, change: StateChange, fetch: FetchContent) -> object:
    """The state after a recorded change; `state`, in opaque form, is used up.

    Raises `EventCorruptError` where the patch does not apply, `BlobCorruptError` where it is gone.
    """
    data = change.patch.data
    operations = decode(data if isinstance(data, bytes) else fetch(change.patch), opaque=True)
    return apply(operations, state)


class TranscriptReducer:
    """Messages, calls, results and rewards, for sessions recorded without a state."""

    name = "transcript"
    version = "1"

    def begin(self, seed: Event, fetch: FetchContent) -> object:
        """An empty transcript."""
        del seed, fetch
        return {"messages": [], "calls": [], "verified": [], "closed": None}

    def apply_event(self, state: object, event: Event, fetch: FetchContent) -> object:
        """The transcript with this event's line added; a return completes its call's line."""
        assert isinstance(state, dict)
        body = event.body
        if isinstance(body, MessageAdded):
            line: dict[str, object] = {"step": event.step, "role": body.role}
            line["content"] = _transcript_value(body.content, fetch)
            state["messages"].append(line)
        elif isinstance(body, ToolCalled):
            state["calls"].append(_call_line(event.step, body, fetch))
        elif isinstance(body, ToolReturned):
            _complete_call(state["calls"], event.step, body, fetch)
        elif isinstance(body, Verified):
            state["verified"].append(
                {
                    "step": event.step,
                    "verifier": body.verifier,
                    "reward": body.reward,
                    "components": dict(body.components),
                }
            )
        elif isinstance(body, SessionClosed):
            state["closed"] = body.reason
        elif isinstance(body, SessionResumed | SessionForked):
            state["closed"] = None
        return state


def _call_line(step: int, body: ToolCalled, fetch: FetchContent) -> dict[str, object]:
    return {
        "call_step": step,
        "return_step": None,
        "tool": body.tool,
        "call_id": body.call_id,
        "arguments": _transcript_value(body.arguments, fetch),
        "status": "open",
        "result": None,
        "reward": None,
    }


def _complete_call(
    calls: list[dict[str, object]], step: int, body: ToolReturned, fetch: FetchContent
) -> None:
    place = bisect_left(calls, body.called_step, key=lambda line: cast(int, line["call_step"]))
    if place == len(calls) or calls[place]["call_step"] != body.called_step:
        return
    line = calls[place]
    if line["return_step"] is None:  # A call is answered once, as in `call_view`: the first stands.
        line["return_step"] = step
        line["status"] = body.status
        line["result"] = None if body.result is None else _transcript_value(body.result, fetch)
        line["reward"] = body.reward


def _transcript_value(content: Content, fetch: FetchContent) -> object:
    """Parsed where it is JSON, else str; over 4 KiB the digest and size of its bytes."""
    data = content.data
    if isinstance(data, BlobRef):
        return {"blob": data.digest.hex(), "size": data.size}
    if len(data) > TRANSCRIPT_CONTENT_BYTES_MAX:
        return {"blob": sha256(data).hexdigest(), "size": len(data)}
    value = read_content(content.media_type, fetch(content), opaque=True)
    return _parsed(str(value)) if isinstance(value, JsonText) else value


class _KeyTwiceError(ValueError):
    """JSON text that a parsed value would not say all of."""


def _parsed(text: str) -> object:
    """The value of JSON text, the same in every process; the text where no value says it all."""
    if not is_json_text(text):
        return text
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_int=_whole_number)
    except _KeyTwiceError:
        return text


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise _KeyTwiceError
    return made


def _whole_number(digits: str) -> int:
    # How long a number `int` reads is a setting of the process; what Decimal reads is not.
    return int(digits) if len(digits) <= _DIGITS_ALWAYS_READ else int(Decimal(digits))


class ReducerKey(NamedTuple):
    """What a session's seed names: the reducer and its version."""

    name: str
    version: str


class ReducerRegistry:
    """Reducers by name and version. A fresh registry holds the two that ship."""

    def __init__(self) -> None:
        self._reducers: dict[ReducerKey, Reducer] = {}
        self.register(CapturedReducer())
        self.register(TranscriptReducer())

    def register(self, reducer: Reducer) -> None:
        """Make a reducer of yours known. Raises `ConfigError` where the key is taken."""
        key = ReducerKey(reducer.name, reducer.version)
        if self._reducers.setdefault(key, reducer) is not reducer:
            raise ConfigError(
                f"a reducer {key.name!r} version {key.version!r} is registered already",
                hint="give yours another name, or another version",
            )

    def find(self, name: str, version: str | None, *, session_id: str | None = None) -> Reducer:
        """The reducer of that name and version; None takes the only version there is.

        Raises `ReducerMissingError` or `ReducerVersionError`.
        """
        versions: Mapping[str, Reducer] = {
            key.version: reducer for key, reducer in self._reducers.items() if key.name == name
        }
        if not versions:
            raise ReducerMissingError(
                f"no reducer {name!r} is registered in this process",
                hint="register it with Workspace.reducers.register before replaying",
                session_id=session_id,
            )
        if version is None and len(versions) == 1:
            return next(iter(versions.values()))
        if version is None or version not in versions:
            raise ReducerVersionError(
                f"reducer {name!r} is registered as version {sorted(versions)}, not {version!r}",
                hint="register the version that the session was recorded with",
                session_id=session_id,
            )
        return versions[version]
