"""Saves in the background that Ctrl-C, an error or the program's end fell into: none gets lost."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: torch checkpoints not shown")

from eventlog.errors import CheckpointError  # noqa: E402
from replay.workspace import open_workspace  # noqa: E402
from snapshots.checkpoint_config import CheckpointConfig  # noqa: E402
from snapshots.checkpoint_store import CheckpointStore  # noqa: E402
from snapshots.checkpoints.object_folder import ObjectFolder  # noqa: E402
from snapshots.save_handle import SaveEnds, SaveHandle  # noqa: E402
from snapshots.shard_reader import ShardReader  # noqa: E402
from snapshots.shard_saver import ShardSaver  # noqa: E402
from tests.support.sources import ROOT  # noqa: E402
from tests.support.torch_states import load  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is")

SOON_S = 60


class Disk:
    """A disk that stands still until `runs` is set; `reached` is set by the first object."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.runs = threading.Event()
        self.reached = threading.Event()
        put = ObjectFolder.write_object

        def write_object(folder: ObjectFolder, pieces: Any) -> Any:
            self.reached.set()
            assert self.runs.wait(SOON_S)
            return put(folder, pieces)

        monkeypatch.setattr(ObjectFolder, "write_object", write_object)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    made = Disk(monkeypatch)
    yield made
    made.runs.set()


def interrupt_start(monkeypatch: pytest.MonkeyPatch, began: threading.Event | None) -> None:
    """Ctrl-C in the moment in which the next save's thread is started, once it has `began`."""
    start = threading.Thread.start

    def start_and_raise(thread: threading.Thread) -> None:
        monkeypatch.undo()
        if began is not None:
            start(thread)
            assert began.wait(SOON_S)
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", start_and_raise)


def test_a_save_that_ctrl_c_fell_into_keeps_its_copies(tmp_path: Path, disk: Disk) -> None:
    """The last save of an interrupted training was copied over the one that was under way: a set
    that mixed both was committed."""
    state = {f"t{at}": torch.full((100_000,), 1.0) for at in range(5)}
    with ShardSaver(tmp_path) as saver:
        with pytest.MonkeyPatch.context() as patch:
            interrupt_start(patch, disk.reached)
            with pytest.raises(KeyboardInterrupt):
                saver.save_async(state, step=1)
        later = {name: tensor + 1 for name, tensor in state.items()}
        with pytest.raises(CheckpointError, match="the save of step 1 is still under way") as told:
            saver.save_async(later, step=2)
        assert "leave the block" in told.value.hint
        disk.runs.set()
    found = load({name: torch.zeros(100_000) for name in state}, ShardReader(tmp_path))
    assert all(bool((one == 1).all()) for one in found.values())


def test_a_save_that_ctrl_c_kept_from_beginning_is_given_up(tmp_path: Path, disk: Disk) -> None:
    disk.runs.set()
    given_up: list[int] = []
    ends = SaveEnds(give_up=lambda: given_up.append(1))
    with ShardSaver(tmp_path) as saver:
        with pytest.MonkeyPatch.context() as patch:
            interrupt_start(patch, None)
            with pytest.raises(KeyboardInterrupt):
                saver.save_async({"w": torch.ones(10)}, step=1, ends=ends)
        assert given_up == [1]
        assert saver.save_async({"w": torch.ones(10)}, step=2).wait(SOON_S).training_step == 2
    assert [ref.training_step for ref in CheckpointStore(tmp_path).list_checkpoints()] == [2]


def leave_by_error(folder: Path, how: str) -> SaveHandle:
    """The handle of a save whose block `sys.exit` has left."""
    weight = {"w": torch.ones(10)}
    with suppress(SystemExit):
        if how == "saver":
            with ShardSaver(folder) as saver:
                handle = saver.save_async(weight, step=3)
                sys.exit()
        config = CheckpointConfig(async_save=True)
        with open_workspace(folder) as ws, ws.training("run", config=config) as run:
            handle = run.checkpoint(3, extra=weight)
            sys.exit()
    return handle


@pytest.mark.parametrize("how", ["saver", "training"])
def test_what_a_save_met_is_logged_where_an_error_leaves_the_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    """The save had failed, and the program ended without a word of it."""

    def refuse(*_: object) -> Any:
        raise CheckpointError("the disk is full", hint="free some space")

    monkeypatch.setattr(ObjectFolder, "write_object", refuse)
    handle = leave_by_error(tmp_path, how)
    with pytest.raises(CheckpointError, match="the disk is full"):
        handle.wait()
    del handle
    told = [one.message for one in caplog.records if one.name == "steplog.checkpoints"]
    assert len(told) == 1
    assert "the save of step 3 in the background failed, and nobody asked its handle" in told[0]
    assert "the disk is full" in told[0]


ENDS = """\
import sys, threading, torch, steplog
from eventlog.errors import CheckpointError
from snapshots.checkpoints.object_folder import ObjectFolder
from snapshots.shard_saver import ShardSaver

put = ObjectFolder.write_object

def write_object(folder, pieces):
    threading.main_thread().join(60)  # until the program has come to its end
    if how == "fails":
        raise CheckpointError("the disk is full", hint="")
    return put(folder, pieces)

ObjectFolder.write_object = write_object
how, folder = sys.argv[1:]
start = threading.Thread.start

def start_or_refuse(thread):
    if thread.name != "steplog-save":
        raise RuntimeError("can't create new thread at interpreter shutdown")
    start(thread)

if how == "no threads":  # as in Python 3.12
    threading.Thread.start = start_or_refuse
weight = {f"t{at}": torch.full((100_000,), float(at)) for at in range(8)}
if how == "training":
    ws = steplog.open_workspace(folder)
    run = ws.training("run", config=steplog.CheckpointConfig(async_save=True)).__enter__()
    run.checkpoint(1, extra=weight)
else:
    saver = ShardSaver(folder)
    saver.save_async(weight, step=1)
sys.exit()
"""


@pytest.mark.parametrize("how", ["saver", "training", "fails", "no threads"])
def test_a_program_that_ends_waits_for_the_save_or_says_what_it_met(
    tmp_path: Path, how: str
) -> None:
    """Its threads took no work once the program ended: the save was lost, and nothing was said."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", ENDS, how, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    store = CheckpointStore(tmp_path)
    if how == "training":
        store = CheckpointStore(tmp_path / "checkpoints", "trainings-run")
    if how == "fails":
        assert "the save of step 1 in the background failed" in done.stderr
        assert "the disk is full" in done.stderr
        assert store.head() is None
        return
    assert done.stderr == ""
    head = store.head()
    assert head is not None
    assert head.training_step == 1
    store.verify_in_place(store.read_manifest(head))
