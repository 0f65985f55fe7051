"""`replay_to`: the state after any step, from the nearest snapshot that the log bears out."""

import shutil
from collections import deque
from collections.abc import Callable
from pathlib import Path

import pytest

from eventlog.canonical import digest, encode
from eventlog.codec import decode_event
from eventlog.content import STATE_PATCH, Content
from eventlog.errors import (
    BlobCorruptError,
    DivergenceError,
    EventCorruptError,
    NotRestorableError,
    ReducerMissingError,
    ReducerVersionError,
    SessionNotFoundError,
    StepNotFoundError,
)
from eventlog.event import Annotated, Event, SessionSeeded, StateChange, StateUnknown
from eventlog.opaque_values import Registered
from replay.replayer import Replayer
from replay.workspace import Workspace, open_workspace
from snapshots.policy import EveryN
from snapshots.snapshot import Snapshot
from snapshots.snapshot_store import SnapshotRef
from tests.support.desk import Told
from tests.support.events import EventChain
from tests.support.recorded import append_all

Play = Callable[..., Told]


def test_every_step_gives_the_state_it_had(ws: Workspace, play: Play) -> None:
    told = play(calls=30)
    records = list(ws.log.read_session("s"))
    assert len(records) == len(told.states) == 62
    for step, state in enumerate(told.states):
        replayed = ws.replay("s", step)
        assert replayed.state_bytes == state
        assert replayed.state_digest == digest(replayed.state)
        assert (replayed.session_id, replayed.step) == ("s", step)
        assert replayed.event_digest == records[step].digest
        assert replayed.kind == records[step].prefix.kind
        assert (replayed.reducer, replayed.reducer_version) == ("captured", "1")


def test_the_last_step_is_the_default(ws: Workspace, play: Play) -> None:
    told = play(calls=3)
    assert (ws.replay("s").step, ws.replay("s").state_bytes) == (7, told.states[-1])


def test_snapshots_change_nothing_but_the_way(ws: Workspace, play: Play) -> None:
    told = play(calls=40, snapshots=EveryN(10))
    for step, state in enumerate(told.states):
        with_snapshots = ws.replay("s", step)
        without = ws.replay("s", step, use_snapshots=False)
        assert with_snapshots.state_bytes == without.state_bytes == state
        assert with_snapshots.skipped == ()
        assert without.from_snapshot is None
        assert without.folded == step
        if with_snapshots.from_snapshot is not None:
            assert with_snapshots.folded == step - with_snapshots.from_snapshot <= 11
    assert ws.replay("s", 41).from_snapshot is not None


@pytest.mark.parametrize("step", [-1, -2, 22, 1000])
def test_a_step_that_is_not_there(ws: Workspace, play: Play, step: int) -> None:
    play(calls=10)
    with pytest.raises(StepNotFoundError) as caught:
        ws.replay("s", step)
    assert caught.value.session_id == "s"


def test_a_session_that_is_not_there(ws: Workspace) -> None:
    with pytest.raises(SessionNotFoundError):
        ws.replay("nobody")


def test_a_state_given_back_is_the_callers_own(ws: Workspace, play: Play) -> None:
    play(calls=3)
    replayed = ws.replay("s")
    first = replayed.state
    assert isinstance(first, dict)
    first["queue"].append("mine")
    assert replayed.state != first
    opaque = replayed.opaque_state
    assert isinstance(opaque, dict)
    assert isinstance(opaque["rng"], Registered)


# Unknown states.


def test_an_unrecorded_state_names_the_known_steps_around_it(ws: Workspace) -> None:
    with ws.record("s", environment="desk", state={"n": 0}) as session:
        session.record_tool_return(session.record_tool_call("a", {}), "x", state={"n": 1})
        session.record_message("user", "hm")
        for _ in range(2):
            session.record_tool_return(session.record_tool_call("b", {}), "x")
        session.record_tool_return(session.record_tool_call("c", {}), "x", state={"n": 2})
    assert ws.replay("s", 4).state == {"n": 1}
    for step in (5, 6, 7, 8):
        with pytest.raises(NotRestorableError) as caught:
            ws.replay("s", step)
        assert (caught.value.last_known, caught.value.next_known) == (4, 9)
        assert caught.value.step == step
    assert ws.replay("s", 9).state == {"n": 2}


def test_a_state_that_is_never_known_again(ws: Workspace) -> None:
    with ws.record("s", environment="desk", state={"n": 0}) as session:
        session.record_tool_return(session.record_tool_call("a", {}), "x")
    with pytest.raises(NotRestorableError) as caught:
        ws.replay("s")
    assert (caught.value.last_known, caught.value.next_known) == (1, None)
    assert ws.replay("s", reducer="transcript").step == 3


def test_a_session_said_to_have_states_begins_without_one(ws: Workspace) -> None:
    """It was given as None, as if that had been recorded."""
    chain = EventChain("s")
    chain.seed(writer=ws.log.writer_id, reducer="captured", reducer_version="1")
    chain.append(Annotated("x", Content.of_value(1)))
    patch = Content(STATE_PATCH, encode([["set", [], {"n": 1}]]))
    change = StateChange(patch, digest({"n": 1}))
    chain.append(Annotated("x", Content.of_value(2)), state_change=change)
    append_all(ws.log, chain.events)
    for step in (0, 1):
        with pytest.raises(NotRestorableError) as caught:
            ws.replay("s", step)
        assert (caught.value.last_known, caught.value.next_known) == (None, 2)
    assert ws.replay("s", 2).state == {"n": 1}


def test_a_seed_that_says_the_state_is_unknown_is_believed(ws: Workspace) -> None:
    """The seed's own state change was not read: a state it calls unknown was given out."""
    chain = EventChain("s")
    chain.append(
        SessionSeeded(
            "desk", writer=ws.log.writer_id, initial_state=Content.of_value({"guess": True})
        ),
        state_change=StateUnknown("set up from a scenario, not captured"),
    )
    chain.call()
    chain.returned(state_change=whole({"n": 1}))
    append_all(ws.log, chain.events)
    for step in (0, 1):
        with pytest.raises(NotRestorableError, match="never known before, next known after step 2"):
            ws.replay("s", step)
    assert ws.replay("s", 2).state == {"n": 1}
    assert [report.verdict for report in ws.check()] == ["ok"]


def whole(state: object) -> StateChange:
    """A change that says the whole state."""
    return StateChange(Content(STATE_PATCH, encode([["set", [], state]])), digest(state))


# Snapshots that must not be used.


def forge(ws: Workspace, step: int, state: object, **changes: object) -> SnapshotRef:
    """A sound file that claims another state, event or reducer than the log has."""
    data = encode(state)
    event = next(ws.log.read_session("s", step, step + 1))
    snapshot = Snapshot("s", step, event.digest, digest(state), "captured", "1", data)
    return ws.snapshots.put_snapshot(snapshot._replace(**changes))  # type: ignore[arg-type]


def test_a_sound_snapshot_of_another_state_is_not_believed(ws: Workspace, play: Play) -> None:
    """Its own digests fit: only the log knows that the state was another."""
    told = play(calls=10, snapshots=EveryN(8))
    for step in (9, 10, 11, 12):
        forge(ws, step, {"forged": step})
    for step in range(9, 22):
        replayed = ws.replay("s", step)
        assert replayed.state_bytes == told.states[step]
        assert any("not the recorded one" in why for why in replayed.skipped) or step > 15


def test_a_forged_snapshot_far_from_the_last_change_is_not_believed(ws: Workspace) -> None:
    state = {"n": 0}
    with ws.record("s", environment="desk", state=lambda: state) as session:
        state["n"] = 1
        session.record_state("begin")
        for _ in range(300):
            session.record_message("user", "nothing changes")
    forge(ws, 290, {"n": 2})
    forge(ws, 295, {"n": 1})
    assert ws.replay("s", 294).state == {"n": 1}
    assert ws.replay("s", 294).skipped == (
        "snapshot of step 290: its state is not the recorded one",
    )
    assert ws.replay("s", 296).from_snapshot == 295


def test_a_forged_snapshot_of_a_session_that_never_changed(ws: Workspace) -> None:
    with ws.record("s", environment="desk", state={"n": 0}) as session:
        for _ in range(40):
            session.record_message("user", "nothing changes")
    forge(ws, 30, {"n": 1})
    assert ws.replay("s", 33).state == {"n": 0}
    forge(ws, 31, {"n": 0})
    assert ws.replay("s", 33).from_snapshot == 31


def test_a_snapshot_where_the_state_was_not_recorded_is_not_believed(ws: Workspace) -> None:
    with ws.record("s", environment="desk", state={"n": 0}) as session:
        session.record_tool_return(session.record_tool_call("a", {}), "x")
        session.record_message("user", "hm")
    forge(ws, 3, {"n": 0})
    with pytest.raises(NotRestorableError):
        ws.replay("s", 3)


def test_snapshots_ahead_of_the_log_are_told(ws: Workspace, play: Play) -> None:
    """They were passed over in silence: nobody learned that the log had lost its end."""
    told = play(calls=10, snapshots=EveryN(1000))
    shutil.copytree(ws.folder, ws.folder.parent / "older")
    with ws.resume("s", reopen=True, state=lambda: told.desk.state) as session:
        told.play(session, 5)
    for step in (20, 25, 30):
        ws.take_snapshot("s", step)
    shutil.copytree(
        ws.folder / "snapshots", ws.folder.parent / "older" / "snapshots", dirs_exist_ok=True
    )
    with open_workspace(ws.folder.parent / "older") as older:
        replayed = older.replay("s")
        assert (replayed.step, replayed.from_snapshot) == (21, 20)
        ahead = [why for why in replayed.skipped if "ahead of the log" in why]
        assert [why.split(":")[0] for why in ahead] == [
            "snapshot of step 33",
            "snapshot of step 30",
            "snapshot of step 25",
        ]
        assert older.replay("s", 20).skipped == (), "those of later steps are not looked at"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"event_digest": bytes(32)}, "another event"),
        ({"reducer": "mine"}, "made by reducer"),
        ({"reducer_version": "2"}, "made by reducer"),
    ],
)
def test_a_snapshot_of_something_else_is_skipped(
    ws: Workspace, play: Play, changes: dict[str, object], why: str
) -> None:
    told = play(calls=10, snapshots=EveryN(1000))
    forge(ws, 12, ws.replay("s", 12).state, **changes)
    replayed = ws.replay("s", 13)
    assert replayed.state_bytes == told.states[13]
    assert why in replayed.skipped[0]
    assert replayed.from_snapshot is None


def test_a_damaged_snapshot_is_skipped_for_an_older_one(ws: Workspace, play: Play) -> None:
    told = play(calls=20, snapshots=EveryN(10))
    store = ws.snapshots
    refs = list(store.list_snapshots("s"))
    path = ws.folder / "snapshots"
    files = sorted(path.glob("*/*/*.snap"))
    assert len(files) == len(refs) == 4
    files[2].write_bytes(files[2].read_bytes()[:-1])
    replayed = ws.replay("s", refs[2].step + 1)
    assert replayed.state_bytes == told.states[refs[2].step + 1]
    assert replayed.from_snapshot == refs[1].step
    assert len(replayed.skipped) == 1
    for file in files:
        file.write_bytes(b"")
    replayed = ws.replay("s", 30)
    assert (replayed.state_bytes, replayed.from_snapshot) == (told.states[30], None)
    assert len(replayed.skipped) == 3, "those of later steps are not looked at"


def test_what_lies_among_the_snapshots_is_reported(ws: Workspace, play: Play) -> None:
    told = play(calls=2)
    folder = next((ws.folder / "snapshots").glob("*/*"))
    (folder / "notes.txt").write_text("mine")
    replayed = ws.replay("s")
    assert replayed.state_bytes == told.states[-1]
    assert any("notes.txt" in why for why in replayed.skipped)


# Divergence and damage.


def wrong_history(ws: Workspace, digest_of: object) -> None:
    """A session whose third event says another digest than its patch gives."""
    chain = EventChain("s")
    chain.seed(
        writer=ws.log.writer_id,
        reducer="captured",
        reducer_version="1",
        initial_state=Content.of_value({"n": 0}),
    )
    for number, told in ((1, 1), (2, digest_of), (3, 3)):
        patch = Content(STATE_PATCH, encode([["set", ["n"], number]]))
        change = StateChange(patch, digest({"n": told}))
        chain.append(Annotated("x", Content.of_value(number)), state_change=change)
    append_all(ws.log, chain.events)


def test_the_first_step_that_differs_is_named(ws: Workspace) -> None:
    wrong_history(ws, "something else")
    assert ws.replay("s", 1).state == {"n": 1}
    for step in (2, 3):
        with pytest.raises(DivergenceError) as caught:
            ws.replay("s", step)
        assert (caught.value.session_id, caught.value.step) == ("s", 2)


def test_a_patch_that_does_not_apply_names_its_step(ws: Workspace) -> None:
    chain = EventChain("s")
    chain.seed(
        writer=ws.log.writer_id,
        reducer="captured",
        reducer_version="1",
        initial_state=Content.of_value({"n": 0}),
    )
    change = StateChange(Content(STATE_PATCH, encode([["del", ["m"]]])), bytes(32))
    chain.append(Annotated("x", Content.of_value(1)), state_change=change)
    append_all(ws.log, chain.events)
    with pytest.raises(EventCorruptError) as caught:
        ws.replay("s")
    assert (caught.value.session_id, caught.value.step) == ("s", 1)


def test_a_missing_blob_names_the_step_that_needs_it(ws: Workspace, tmp_path: Path) -> None:
    state = {"text": "a"}
    with ws.record("s", environment="desk", state=lambda: state) as session:
        state["text"] = "b" * 400_000
        session.record_state("large")
    assert ws.replay("s", 1).state == state
    for blob in (ws.folder / "blobs").glob("*/*"):
        blob.unlink()
    with pytest.raises(BlobCorruptError) as caught:
        ws.replay("s", 1)
    assert (caught.value.session_id, caught.value.step) == ("s", 1)
    assert ws.replay("s", 0).state == {"text": "a"}
    assert ws.replay("s", 2).from_snapshot == 2, "the snapshot at the end has the state"


# Reducers of the user's own.


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


def test_transcripts_take_snapshots_too(ws: Workspace) -> None:
    record_tools(ws, tools="abcd")
    expected = ws.replay("s").state_bytes
    ws.take_snapshot("s", 5)
    replayed = ws.replay("s")
    assert (replayed.from_snapshot, replayed.folded) == (5, 4)
    assert replayed.state_bytes == expected


def test_a_replay_reads_no_more_events_than_it_folds(ws: Workspace, play: Play) -> None:
    play(calls=300, snapshots=EveryN(100))
    read = 0
    log = ws.log

    class Counting:
        def __getattr__(self, name: str) -> object:
            return getattr(log, name)

        def read_session(self, *args: object, **kwargs: object) -> object:
            nonlocal read
            for record in log.read_session(*args, **kwargs):  # type: ignore[arg-type]
                read += 1
                yield record

    replayer = Replayer(Counting(), ws.blobs, ws.snapshots, ws.reducers)  # type: ignore[arg-type]
    replayed = replayer.replay_to("s", 350)
    assert replayed.folded <= 101
    assert read <= replayed.folded + 5
    assert decode_event(next(log.read_session("s", 350)).data).step == 350
