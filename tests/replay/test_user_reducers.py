"""Replays by reducers: the user's own, the captured one and the transcript."""

from collections import deque
from collections.abc import Callable

import pytest

from eventlog.errors import (
    DivergenceError,
    NotRestorableError,
    ReducerMissingError,
    ReducerVersionError,
)
from eventlog.event import Event
from replay.workspace import Workspace, open_workspace
from tests.support.desk import Told

Play = Callable[..., Told]


class Tally:
    """Counts calls by tool, in values that only a registration makes live."""

    name = "tally"

    def __init__(self, version: str = "1", step: int = 1) -> None:
        self.version = version
        self._step = step

    def begin(self, seed: Event, fetch: object) -> object:
        """No calls yet."""
        return {"tools": {}, "last": deque(maxlen=3)}

    def apply_event(self, state: object, event: Event, fetch: object) -> object:
        """One more for the tool that was called."""
        assert isinstance(state, dict)
        tool = getattr(event.body, "tool", None)
        if tool is not None:
            state["tools"][tool] = state["tools"].get(tool, 0) + self._step
            state["last"].append(tool)
        return state


def record_tools(ws: Workspace, name: str = "s", tools: str = "abacab", **options: object) -> None:
    with ws.record(name, environment="desk", **options) as session:  # type: ignore[arg-type]
        for tool in tools:
            session.record_tool_return(session.record_tool_call(tool, {}), "x")


def test_a_reducer_of_the_users_own_builds_the_state(ws: Workspace) -> None:
    ws.reducers.register(Tally())
    record_tools(ws, reducer="tally")
    replayed = ws.replay("s")
    assert replayed.state == {"tools": {"a": 3, "b": 2, "c": 1}, "last": deque("cab", maxlen=3)}
    assert (replayed.reducer, replayed.reducer_version) == ("tally", "1")
    assert ws.replay("s", 3).state == {"tools": {"a": 1, "b": 1}, "last": deque("ab", maxlen=3)}


def test_its_snapshots_go_on_with_live_values(ws: Workspace) -> None:
    """From a snapshot the reducer got a closed value where it had made a deque."""
    ws.reducers.register(Tally())
    record_tools(ws, reducer="tally")
    expected = ws.replay("s", use_snapshots=False).state_bytes
    ws.take_snapshot("s", 6)
    replayed = ws.replay("s")
    assert (replayed.from_snapshot, replayed.skipped) == (6, ())
    assert replayed.state_bytes == expected


def test_a_process_without_the_reducer_says_so(ws: Workspace) -> None:
    ws.reducers.register(Tally())
    record_tools(ws, reducer="tally")
    with open_workspace(ws.folder) as other:
        with pytest.raises(ReducerMissingError) as caught:
            other.replay("s")
        assert caught.value.session_id == "s"
        assert other.replay("s", reducer="transcript").reducer == "transcript"
        other.reducers.register(Tally("2"))
        with pytest.raises(ReducerVersionError):
            other.replay("s")
        other.reducers.register(Tally("1"))
        assert other.replay("s").state_bytes == ws.replay("s").state_bytes
        again = other.replay("s", reducer="tally")
        assert again.reducer_version == "1", "the version that the session was recorded with"


def test_recording_for_an_unknown_reducer_is_refused_at_once(ws: Workspace) -> None:
    with pytest.raises(ReducerMissingError):
        ws.record("s", environment="desk", reducer="nobody's")
    assert list(ws.sessions()) == []


class Sum:
    """A reducer that gives the states that the environment also records."""

    name = "sum"
    version = "1"

    def __init__(self, factor: int = 1, drift_at: int = -1) -> None:
        self._factor = factor
        self._drift_at = drift_at

    def begin(self, seed: Event, fetch: object) -> object:
        """Nothing added yet."""
        return {"sum": 0}

    def apply_event(self, state: object, event: Event, fetch: object) -> object:
        """Each answered call adds one."""
        assert isinstance(state, dict)
        added = self._factor if event.kind == "tool_returned" else 0
        return {"sum": state["sum"] + added + (event.step == self._drift_at)}


def record_sum(ws: Workspace) -> None:
    state = {"sum": 0}
    with ws.record("s", environment="desk", state=lambda: state, reducer="sum") as session:
        for _ in range(4):
            step = session.record_tool_call("add", {})
            state["sum"] += 1
            session.record_tool_return(step, "x")


def test_a_reducer_is_held_to_the_recorded_states(ws: Workspace) -> None:
    ws.reducers.register(Sum())
    record_sum(ws)
    assert ws.replay("s").state == {"sum": 4}
    assert ws.replay("s", reducer="captured").state == {"sum": 4}
    with open_workspace(ws.folder) as other:
        other.reducers.register(Sum(factor=2))
        with pytest.raises(DivergenceError) as caught:
            other.replay("s")
        assert caught.value.step == 2


def test_a_reducer_that_moves_where_the_recording_did_not_diverges(ws: Workspace) -> None:
    """At a step without a recorded change nothing held it to the last recorded state."""
    ws.reducers.register(Sum())
    record_sum(ws)
    with open_workspace(ws.folder) as other:
        other.reducers.register(Sum(drift_at=9))
        assert other.replay("s", 8).state == {"sum": 4}
        with pytest.raises(DivergenceError) as caught:
            other.replay("s", 9)
        assert caught.value.step == 9


def test_a_reducer_that_begins_elsewhere_diverges_at_the_seed(ws: Workspace) -> None:
    ws.reducers.register(Sum())
    record_sum(ws)

    class Late(Sum):
        def begin(self, seed: Event, fetch: object) -> object:
            return {"sum": 1}

    with open_workspace(ws.folder) as other:
        other.reducers.register(Late())
        with pytest.raises(DivergenceError) as caught:
            other.replay("s", 0)
        assert caught.value.step == 0


def test_a_reducer_goes_on_where_the_state_was_not_said(ws: Workspace) -> None:
    """Its states are its own: that nobody captured one does not make them unknown."""
    ws.reducers.register(Sum())
    with ws.record("s", environment="desk", state={"sum": 0}, reducer="sum") as session:
        for _ in range(2):
            session.record_tool_return(session.record_tool_call("add", {}), "x")
    assert ws.replay("s").state == {"sum": 2}
    ws.take_snapshot("s", 3)
    assert ws.replay("s").from_snapshot == 3
    with pytest.raises(NotRestorableError):
        ws.replay("s", reducer="captured")


def test_another_reducer_than_the_seeds_is_held_to_nothing(ws: Workspace, play: Play) -> None:
    play(calls=4)
    ws.reducers.register(Tally())
    replayed = ws.replay("s", reducer="tally")
    assert (replayed.reducer, replayed.from_snapshot) == ("tally", None)
    state = replayed.state
    assert isinstance(state, dict)
    assert sum(state["tools"].values()) == 4


def test_a_captured_session_also_has_a_transcript(ws: Workspace, play: Play) -> None:
    play(calls=4)
    state = ws.replay("s", reducer="transcript").state
    assert isinstance(state, dict)
    assert (len(state["calls"]), state["closed"]) == (4, "done")


def test_a_session_without_a_state_is_a_transcript(ws: Workspace) -> None:
    record_tools(ws, tools="ab")
    replayed = ws.replay("s", 2)
    assert replayed.reducer == "transcript"
    state = replayed.state
    assert isinstance(state, dict)
    assert [call["status"] for call in state["calls"]] == ["ok"]
    record_tools(ws, "t", "ab", reducer="captured")
    assert ws.replay("t").reducer == "transcript"


def test_a_session_without_a_state_has_no_captured_one(ws: Workspace) -> None:
    """Asked for by name, the captured state of such a session was None."""
    record_tools(ws, tools="ab")
    with pytest.raises(NotRestorableError) as caught:
        ws.replay("s", 2, reducer="captured")
    assert (caught.value.last_known, caught.value.next_known) == (None, None)


def test_transcripts_take_snapshots_too(ws: Workspace) -> None:
    record_tools(ws, tools="abcd")
    expected = ws.replay("s").state_bytes
    ws.take_snapshot("s", 5)
    replayed = ws.replay("s")
    assert (replayed.from_snapshot, replayed.folded) == (5, 4)
    assert replayed.state_bytes == expected
