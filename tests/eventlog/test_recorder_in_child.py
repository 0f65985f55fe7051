"""A recorder in a forked child: every method raises at once, whatever the parent was doing."""

import multiprocessing
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from multiprocessing.connection import Connection

import pytest

from eventlog.blob_store import MemoryBlobStore
from eventlog.codec import EncodedEvent
from eventlog.errors import FencedError
from eventlog.event import SessionSeeded
from eventlog.log import Receipt
from eventlog.memory_log import MemoryLog
from eventlog.recorder import SessionRecorder

WAIT_S = 20.0
Act = Callable[[SessionRecorder], object]

ACTS: dict[str, Act] = {
    "flush": lambda one: one.flush(),
    "close": lambda one: one.close(),
    "release": lambda one: one.release(),
    "message": lambda one: one.record_message("user", "x"),
    "call": lambda one: one.call("t", {}),
    "tool_call": lambda one: one.record_tool_call("t", {}),
    "retried_call": lambda one: one.record_tool_call("t", {}, idempotency_key="k"),
    "tool_return": lambda one: one.record_tool_return(1, "x"),
    "interrupt": lambda one: one.interrupt_open_calls(),
    "verification": lambda one: one.record_verification(1.0, verifier="v"),
    "effect": lambda one: one.record_effect("clock", "now", 1),
    "state": lambda one: one.record_state("x", {"n": 1}),
    "annotate": lambda one: one.annotate("note", "x"),
}


class SilentLog(MemoryLog):
    """A log that takes appends and does not answer them while `silent`."""

    silent = False

    def submit_events(
        self, session_id: str, events: Sequence[EncodedEvent], *, expected_step: int
    ) -> "Future[Receipt]":
        """As the log in memory, never answered while `silent`."""
        done = super().submit_events(session_id, events, expected_step=expected_step)
        return Future() if self.silent else done


def _try_all(session: SessionRecorder, answers: Connection) -> None:
    for name, act in ACTS.items():
        try:
            act(session)
        except FencedError:
            answers.send(name)
    with session:  # the block's end leaves the parent's session alone
        pass
    answers.send("done")
    answers.close()
    os._exit(0)


def refused_in_a_child(session: SessionRecorder) -> list[str]:
    """What a forked child was refused until it was done, or hung."""
    context = multiprocessing.get_context("fork")
    mine, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_try_all, args=(session, theirs))
    child.start()
    theirs.close()
    refused: list[str] = []
    try:
        while mine.poll(WAIT_S) and (name := mine.recv()) != "done":
            refused.append(name)
    finally:
        child.kill()
        child.join()
    return refused


def begun(log: MemoryLog) -> SessionRecorder:
    session = SessionRecorder.begin(
        log, MemoryBlobStore(), "s", SessionSeeded("test"), state={"n": 0}
    )
    session.record_tool_call("t", {}, idempotency_key="k")
    return session


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_hung_on_a_lock_that_another_thread_held() -> None:
    with MemoryLog() as log:
        session = begun(log)
        held, let_go = threading.Event(), threading.Event()

        def hold() -> None:
            with session._writer.lock:
                held.set()
                let_go.wait()

        holder = threading.Thread(target=hold)
        holder.start()
        held.wait()
        try:
            assert refused_in_a_child(session) == list(ACTS)
        finally:
            let_go.set()
            holder.join()
        session.close()


def test_a_child_hung_on_an_answer_that_only_the_parent_gets() -> None:
    with SilentLog() as log:
        session = begun(log)
        session.flush()
        log.silent = True
        session.record_tool_call("t", {})
        assert refused_in_a_child(session) == list(ACTS)
