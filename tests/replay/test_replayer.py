"""`replay_to`: the state after any step, from the nearest snapshot that the log bears out."""

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
    SessionNotFoundError,
    StepNotFoundError,
)
from eventlog.event import Annotated, SessionSeeded, StateChange, StateUnknown
from eventlog.values.opaque_values import Registered
from replay.replayer import Replayer
from replay.workspace import Workspace
from snapshots.snapshot_policy import EveryN
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
