"""Saves in the background that Ctrl-C, an error or the program's end fell into: none gets lost."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: torch checkpoints not shown")

from eventlog.errors import CheckpointError  # noqa: E402
from snapshots.checkpoint_store import CheckpointStore  # noqa: E402
from snapshots.checkpoints.object_folder import ObjectFolder  # noqa: E402
from snapshots.save_handle import SaveEnds  # noqa: E402
from snapshots.shard_reader import ShardReader  # noqa: E402
from snapshots.shard_saver import ShardSaver  # noqa: E402
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
