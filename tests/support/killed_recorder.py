"""A process that records a desk until it is killed, and tells each step that it was told is kept.

Run as `python -c "from tests.support.killed_recorder import main; main()" FOLDER JOB SEED POINT`.
`POINT` is `time` (the parent kills it), or `NAME:N`: it kills itself when it comes to the N-th of
these points: `commit` and `committed` (before and after a commit of the log), `blob` (before a
blob's file is renamed into place), `snapshot` (before a snapshot is put).
"""

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from eventlog import blob_store
from eventlog.canonical import digest
from eventlog.recorder import SessionRecorder
from eventlog.sqlite.store import SqliteStore
from replay.workspace import Workspace, open_workspace
from snapshots.snapshot_policy import EveryN
from snapshots.snapshot_store import LocalSnapshotStore
from tests.support.desk import Desk

SESSION = "desk"
SEED = 4
POLICY = EveryN(16)
LARGE = 300_000


def tell(session: str, step: int, event_digest: bytes, state_digest: bytes | None) -> None:
    """One line, in one write: never half of it, even when killed."""
    told = [session, step, event_digest.hex(), state_digest and state_digest.hex()]
    os.write(1, json.dumps(told).encode() + b"\n")


def die_at(point: str) -> None:
    """Arm one of the points."""
    name, _, number = point.partition(":")
    if name == "time":
        return
    left = int(number)

    def come_by(*_: object) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(60)

    def before(owner: Any, method: str) -> None:
        real: Callable[..., object] = getattr(owner, method)

        def stepped(*args: object, **kwargs: object) -> object:
            come_by()
            return real(*args, **kwargs)

        setattr(owner, method, stepped)

    if name == "committed":
        real_commit = SqliteStore.commit

        def commit(self: SqliteStore) -> None:
            real_commit(self)
            come_by()

        SqliteStore.commit = commit  # type: ignore[method-assign]
    elif name == "commit":
        before(SqliteStore, "commit")
    elif name == "blob":
        before(blob_store, "write_whole")
    elif name == "snapshot":
        before(LocalSnapshotStore, "put_snapshot")
    else:
        raise ValueError(point)


def take_up(ws: Workspace, desk: Desk, name: str = SESSION) -> SessionRecorder:
    """Begin the session, or go on with it: the desk is set to the restored state."""
    session = ws.record(
        name,
        environment="desk",
        state=lambda: desk.state,
        if_exists="resume",
        snapshots=POLICY,
    )
    desk.state = session.state  # type: ignore[assignment]
    for call in session.open_calls:
        # The tool ran on a state that was never kept, so here it runs for the first time.
        tool, _, result = desk.act()
        assert tool == call.tool
        session.record_tool_return(call.step, result)
    return session


def play(
    session: SessionRecorder,
    desk: Desk,
    calls: int,
    on_kept: Callable[[int, bytes], object] = lambda step, event_digest: None,
) -> None:
    """Record so many calls; `on_kept` gets each step that is durable, and its event digest."""
    for _ in range(calls):
        tool, arguments, result = desk.act()
        step = session.record_tool_call(tool, arguments)
        called = session.event_digest
        if desk.state["ledger"]["entries"] % 7 == 6:
            result = f"{step:06}" * (LARGE // 6)  # another blob each time
        returned = session.record_tool_return(step, result)
        on_kept(step, called)
        on_kept(returned, session.event_digest)


def record(ws: Workspace, rng: random.Random) -> None:
    """The job `record`: play on and on; now and then fork, and play a little in the branch."""
    desk = Desk(SEED)
    session = take_up(ws, desk)
    tell(SESSION, session.step, session.event_digest, digest(desk.state))

    def kept(step: int, event_digest: bytes) -> None:
        state = digest(desk.state) if step == session.step else None
        tell(SESSION, step, event_digest, state)

    while True:
        play(session, desk, rng.randrange(1, 6), kept)
        if rng.random() < 0.2:
            _branch(ws, rng, session.step)


def _branch(ws: Workspace, rng: random.Random, last: int) -> None:
    name = ws.fork(SESSION, rng.randrange(last + 1))
    own = Desk(rng.randrange(100))
    with take_up(ws, own, name) as branch:
        tell(name, branch.step, branch.event_digest, digest(own.state))
        play(branch, own, 2)
        tell(name, branch.step, branch.event_digest, digest(own.state))
    tell(name, branch.step, branch.event_digest, digest(own.state))


def resume(ws: Workspace, rng: random.Random) -> None:
    """The job `resume`: take the session over again and again, sometimes giving it back."""
    desk = Desk(SEED)
    while True:
        session = take_up(ws, desk)
        tell(SESSION, session.step, session.event_digest, digest(desk.state))
        if rng.random() < 0.5:
            session.release()


def close(ws: Workspace, rng: random.Random) -> None:
    """The job `close`: short sessions, one after the other, each closed."""
    for number in range(100_000):
        desk = Desk(number)
        name = f"short/{os.getpid()}/{number}"
        with ws.record(name, environment="desk", state=lambda desk=desk: desk.state) as session:  # type: ignore[misc]
            play(session, desk, rng.randrange(3))
            tell(name, session.step, session.event_digest, digest(desk.state))
        tell(name, session.step, session.event_digest, digest(desk.state))


JOBS = {"record": record, "resume": resume, "close": close}


def main() -> None:
    """Do the job until killed."""
    folder, job, seed, point = sys.argv[1:]
    die_at(point)
    with open_workspace(folder) as ws:
        JOBS[job](ws, random.Random(seed))
