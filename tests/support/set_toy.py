"""A training whose every step is known beforehand, and recorders in processes of their own.

Forked by scenarios of checkpoint sets from a parent that has loaded torch and opened no workspace.
Only for tests that have torch.
"""

import os
import select
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from pprint import pformat
from typing import Any, NoReturn

import torch

from eventlog.errors import FencedError, SteplogError
from eventlog.recorder import SessionRecorder
from replay.workspace import Workspace, open_workspace
from snapshots.training_run import TrainingRun
from tests.support.torch_states import fingerprint

TRAINING = "run/1"
RECORDERS = 3
SESSIONS_EACH = 2
DEADLINE_S = 120


class Toy:
    """A model, its AdamW and its schedule; `advance` makes the one step that follows."""

    def __init__(self) -> None:
        chance = torch.Generator().manual_seed(5)
        self.model = torch.nn.Sequential(torch.nn.Linear(9, 7), torch.nn.Linear(7, 3, bias=False))
        with torch.no_grad():
            for one in self.model.parameters():
                one.copy_(torch.randn(one.shape, generator=chance))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.scheduler = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.99)
        self.step = 0

    def objects(self) -> dict[str, Any]:
        """What is saved and restored."""
        return {"model": self.model, "optimizer": self.optimizer, "scheduler": self.scheduler}

    def advance(self) -> int:
        """One step; returns its number. The same numbers in every process."""
        self.step += 1
        chance = torch.Generator().manual_seed(self.step)
        for one in self.model.parameters():
            one.grad = torch.randn(one.shape, generator=chance)
        self.optimizer.step()
        self.scheduler.step()
        return self.step

    def seen(self) -> str:
        """Every bit of it, as one digest."""
        return toy_digest(self)


def play(session: SessionRecorder, calls: int = 1) -> None:
    """So many calls and their returns."""
    for _ in range(calls):
        call = session.record_tool_call("add", {})
        n = session.step
        session.record_tool_return(call, n, state={"n": n})


def save_at(run: TrainingRun, toy: Toy, step: int, **more: Any) -> str:
    """Train the toy up to the step, and keep a set of it; its id."""
    while toy.step < step:
        toy.advance()
    return run.checkpoint(step, **toy.objects(), **more).wait(30).id


def toy_digest(toy: Toy) -> str:
    """Every bit of the model, its moments and its learning rate."""
    state = {
        "model": toy.model.state_dict(),
        "optimizer": toy.optimizer.state_dict(),
        "scheduler": toy.scheduler.state_dict(),
    }
    return pformat(fingerprint(state))  # keys sorted


def toy_at(step: int) -> str:
    """What `seen` gives after so many steps."""
    toy = Toy()
    while toy.step < step:
        toy.advance()
    return toy.seen()


def forked(run: Callable[[], object]) -> int:
    """Run it in a forked process; returns its id."""
    pid = os.fork()
    if not pid:
        _run_to_end(run)
    return pid


def _run_to_end(run: Callable[[], object]) -> NoReturn:
    try:
        signal.alarm(DEADLINE_S)
        torch.set_num_threads(1)
        run()
    except BaseException:  # noqa: BLE001  (a forked process ends here, whatever it met)
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)


def ended_well(*pids: int) -> None:
    """Wait for them; each must have ended well."""
    codes = [os.waitpid(pid, 0)[1] for pid in pids]
    if any(codes):
        sys.exit(f"a process failed: {codes}")


def kill(pid: int) -> None:
    """SIGKILL, and wait; harmless where it has ended."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    with suppress(ChildProcessError):
        os.waitpid(pid, 0)


class Recorders:
    """Processes that record sessions of the training, each inside an open call all the time.

    Every session's first call since it was begun or resumed stays open, and others are made and
    returned meanwhile: wherever a cut is, the first is open. They end when they are fenced.
    """

    def __init__(self, place: Callable[[int], str | Path], names: str) -> None:
        """`place(number)` is the workspace as the recorder of this number opens it."""
        self.names = [f"{names}-{one}" for one in range(RECORDERS * SESSIONS_EACH)]
        self._reading, writing = os.pipe()
        self.pids = [
            forked(lambda number=number: self._record(place(number), number, writing))
            for number in range(RECORDERS)
        ]
        os.close(writing)
        for _ in self.pids:
            assert select.select([self._reading], [], [], DEADLINE_S)[0], "no recorder began"
            assert os.read(self._reading, 1) == b".", "a recorder ended before it began"
        os.close(self._reading)

    def fenced(self) -> None:
        """Wait until each was fenced, as each must be after a restore."""
        ended_well(*self.pids)
        self.pids = []

    def kill(self) -> None:
        """SIGKILL to all that are left. Idempotent."""
        for pid in self.pids:
            kill(pid)
        self.pids = []

    def _record(self, place: str | Path, number: int, writing: int) -> None:
        with open_workspace(place) as ws:
            mine = self.names[number * SESSIONS_EACH : (number + 1) * SESSIONS_EACH]
            sessions = [_take_up(ws, name) for name in mine]
            for one in sessions:
                one.record_tool_call("wait", {"for": "ever"})
                _play(one, 0)  # its return makes the call before it durable
            os.write(writing, b".")
            at = 0
            while sessions:
                at += 1
                for one in list(sessions):
                    try:
                        _play(one, at)
                    except FencedError:
                        sessions.remove(one)
                select.select([], [], [], 0.03)  # the trainer writes into the same log
            os._exit(0)


def _take_up(ws: Workspace, name: str) -> SessionRecorder:
    try:
        session = ws.resume(name)
    except SteplogError:
        session = ws.record(name, environment="toy", state={"n": 0}, training=TRAINING)
    return session


def _play(session: SessionRecorder, at: int) -> None:
    call = session.record_tool_call("add", {"at": at})
    state = {"n": at, "of": os.getpid()}
    session.record_tool_return(call, at, state=state)
