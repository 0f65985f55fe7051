"""`SnapshotTaker`: due snapshots off the append path; one that fails costs nothing but itself."""

import logging
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from eventlog.canonical import digest, encode
from eventlog.errors import LogUnavailableError, SnapshotError
from eventlog.event import LineHead
from eventlog.recording.state_capture import Recorded
from replay import snapshot_taker
from replay.snapshot_taker import SnapshotTaker
from replay.workspace import Workspace
from snapshots.snapshot import Snapshot
from snapshots.snapshot_policy import AtEnd, EveryN, Moment, SnapshotPolicy
from snapshots.snapshot_store import LocalSnapshotStore, SnapshotRef
from tests.support.desk import Told

Play = Callable[..., Told]
STATE = encode({"n": 1})


class Store(LocalSnapshotStore):
    """A store that can be made to wait, or to fail."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.go_on = threading.Event()
        self.go_on.set()
        self.error: Exception | None = None

    def put_snapshot(self, snapshot: Snapshot) -> SnapshotRef:
        """Wait, then fail or put."""
        assert self.go_on.wait(30)
        if self.error is not None:
            raise self.error
        return super().put_snapshot(snapshot)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "snapshots")


@pytest.fixture
def taker(store: Store) -> Iterator[SnapshotTaker]:
    taker = SnapshotTaker(store)
    yield taker
    store.go_on.set()
    taker.close()


def recorded(step: int, state: bytes | None = STATE, *, at_end: bool = False) -> Recorded:
    return Recorded(LineHead("s", step, 1, bytes([step % 256]) * 32), state, at_end)


def steps(store: Store) -> list[int]:
    return [ref.step for ref in store.list_snapshots("s")]


def test_snapshots_are_taken_when_due(taker: SnapshotTaker, store: Store) -> None:
    observe = taker.observer(EveryN(4) | AtEnd(), "captured")
    assert observe is not None
    for step in range(10):
        observe(recorded(step))
    observe(recorded(10, at_end=True))
    taker.wait()
    assert steps(store) == [4, 8, 10]
    (first, *_) = store.list_snapshots("s")
    snapshot = store.get_snapshot(first)
    assert snapshot == Snapshot("s", 4, bytes([4]) * 32, digest({"n": 1}), "captured", "1", STATE)


def test_an_unknown_state_is_not_kept(taker: SnapshotTaker, store: Store) -> None:
    observe = taker.observer(EveryN(1), "captured")
    assert observe is not None
    for step in range(1, 5):
        observe(recorded(step, None if step % 2 else STATE))
    taker.wait()
    assert steps(store) == [2, 4]


def test_only_captured_states_are_kept(taker: SnapshotTaker) -> None:
    assert taker.observer(None, "transcript") is None
    assert taker.observer(EveryN(1), "mine") is None


def test_the_default_is_every_256_steps_and_at_the_end(ws: Workspace, play: Play) -> None:
    play(calls=300)
    assert [ref.step for ref in ws.snapshots.list_snapshots("s")] == [256, 512, 601]


def test_recording_goes_on_when_snapshots_cannot_be_taken(
    taker: SnapshotTaker, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    observe = taker.observer(EveryN(1), "captured")
    assert observe is not None
    for number, error in enumerate(
        (LogUnavailableError("disk full", hint=""), SnapshotError("in the way", hint="")), 1
    ):
        store.error = error
        with caplog.at_level(logging.WARNING, "steplog.snapshots"):
            observe(recorded(number))
            taker.wait()
        assert taker.passed_over == number
        assert str(error) in caplog.text
    store.error = None
    observe(recorded(7))
    taker.wait()
    assert steps(store) == [7]


def test_what_waits_is_bounded(
    taker: SnapshotTaker, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_taker, "WAITING_BYTES_MAX", 3 * len(STATE))
    observe = taker.observer(EveryN(1), "captured")
    assert observe is not None
    store.go_on.clear()
    for step in range(1, 9):
        observe(recorded(step))
    assert taker.passed_over == 5
    store.go_on.set()
    taker.wait()
    assert steps(store) == [1, 2, 3]
    observe(recorded(9))
    taker.wait()
    assert steps(store) == [1, 2, 3, 9]


def test_a_thread_that_is_not_to_be_had_costs_the_snapshot_only(
    taker: SnapshotTaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_thread(*args: object) -> int:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(snapshot_taker._thread, "start_new_thread", no_thread)
    observe = taker.observer(EveryN(1), "captured")
    assert observe is not None
    observe(recorded(1))
    assert taker.passed_over == 1


def test_a_forked_child_waits_for_nothing_of_its_parent(taker: SnapshotTaker, store: Store) -> None:
    """The child inherited futures that no thread of its own would ever finish, and hung."""
    observe = taker.observer(EveryN(1), "captured")
    assert observe is not None
    store.go_on.clear()
    observe(recorded(1))
    with taker._lock:  # as if another thread held it at the fork
        child = os.fork()
    if child == 0:
        store.go_on.set()
        taker.wait()
        observe(recorded(2))
        taker.wait()
        taker.close()
        os._exit(0 if steps(store) == [2] else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    store.go_on.set()
    taker.wait()
    assert steps(store) == [1, 2]


def test_closing_waits_and_may_be_done_twice(store: Store) -> None:
    taker = SnapshotTaker(store)
    observe = taker.observer(EveryN(1), "captured")
    assert observe is not None
    observe(recorded(1))
    taker.close()
    taker.close()
    assert steps(store) == [1]


def test_a_release_is_an_end_too(ws: Workspace) -> None:
    """A session handed over was folded from far back by whoever went on with it."""
    session = ws.record("s", environment="desk", state={"n": 0}, snapshots=AtEnd())
    step = session.record_message("user", "over to you")
    session.release()
    ws.replay("s")
    assert [ref.step for ref in ws.snapshots.list_snapshots("s")] == [step]
    assert ws.replay("s").from_snapshot == step


class Failing(SnapshotPolicy):
    """A policy whose own code is wrong."""

    def is_due(self, moment: Moment) -> bool:
        """Never says."""
        raise ZeroDivisionError("policy")


def test_a_policy_that_raises_made_a_durable_record_look_failed(
    ws: Workspace, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        caplog.at_level(logging.WARNING, "steplog.snapshots"),
        ws.record("s", environment="desk", state={"n": 1}, snapshots=Failing()) as session,
    ):
        assert session.annotate("note", 1) == 1
        assert session.annotate("note", 2) == 2
    assert ws.session("s").status == "closed"
    assert ws._taker.passed_over == 4
    assert "'Failing' raised ZeroDivisionError: policy" in caplog.messages[0]
    assert ws.replay("s").state == {"n": 1}


@pytest.mark.parametrize("state", [{"n": 1}, None])
def test_what_is_no_policy_was_found_out_after_the_session_began(
    ws: Workspace, state: object
) -> None:
    wrong: Any = 5
    given: dict[str, Any] = {} if state is None else {"state": state}
    with pytest.raises(TypeError, match="SnapshotPolicy"):
        ws.record("s", environment="desk", snapshots=wrong, **given)
    assert list(ws.sessions()) == []
    ws.record("s", environment="desk", **given).annotate("note", 1)
    with pytest.raises(TypeError, match="SnapshotPolicy"):
        ws.resume("s", snapshots=wrong)
    assert ws.session("s").head.attempt == 1


def test_an_unforeseen_error_is_raised_in_who_waits_and_the_thread_goes_on(
    taker: SnapshotTaker, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    observe = taker.observer(EveryN(1), "captured")
    assert observe is not None

    def until_told() -> None:
        for step in range(1, 1_000):  # the thread may be done before it is waited for
            observe(recorded(step))
            taker.wait()

    with monkeypatch.context() as patch:
        patch.setattr(snapshot_taker, "digest_of", lambda data: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            until_told()
        taker.close()
    observe(recorded(1_000))
    taker.wait()
    assert steps(store) == [1_000]
