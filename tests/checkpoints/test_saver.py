"""Saving in the background: the values of the call, no overlap, no error lost, old ones go."""

import threading
from collections.abc import Iterator
from errno import ENOSPC
from os import strerror
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: torch checkpoints not shown")

from eventlog.errors import CheckpointError  # noqa: E402
from snapshots import shard_saver  # noqa: E402
from snapshots.checkpoint_retention import Retention  # noqa: E402
from snapshots.checkpoint_store import CheckpointStore  # noqa: E402
from snapshots.checkpoints.manifest import CheckpointRef, Manifest  # noqa: E402
from snapshots.checkpoints.object_folder import ObjectFolder  # noqa: E402
from snapshots.checkpoints.survey import list_unfinished  # noqa: E402
from snapshots.save_handle import SaveEnds  # noqa: E402
from snapshots.shard_reader import ShardReader  # noqa: E402
from snapshots.shard_saver import ShardSaver  # noqa: E402
from tests.support.torch_states import fingerprint, load, load_again, odd_state  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is")


class Disk:
    """A disk that can be stopped, or made to fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.runs = threading.Event()
        self.runs.set()
        self.error: str | None = None
        put = ObjectFolder.write_object

        def write_object(folder: ObjectFolder, pieces: Any) -> Any:
            assert self.runs.wait(60)
            if self.error is not None:
                raise CheckpointError(self.error, hint="")
            return put(folder, pieces)

        monkeypatch.setattr(ObjectFolder, "write_object", write_object)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    made = Disk(monkeypatch)
    yield made
    made.runs.set()


def test_the_values_and_step_of_the_call_are_saved(tmp_path: Path, disk: Disk) -> None:
    """Updates that came after were written (pytorch #144657), steps read late (Megatron #3267)."""
    state = {"w": torch.zeros(1000), "n": {"step": 0, "list": [0]}, "t": [torch.zeros(3)]}
    with ShardSaver(tmp_path) as saver:
        for step in range(50):
            disk.runs.clear()
            handle = saver.save_async(state, step=step)
            assert handle.staged
            assert handle.committed is None
            handle.guard()
            state["w"] += 1
            state["t"][0] += 1
            state["n"]["step"] += 1
            state["n"]["list"][0] += 1
            disk.runs.set()
            assert handle.wait(60).training_step == step
            assert handle.committed == CheckpointStore(tmp_path).head()
            found = load_again(state, tmp_path)
            assert bool((found["w"] == step).all())
            assert bool((found["t"][0] == step).all())
            assert found["n"] == {"step": step, "list": [step]}


def test_every_kind_of_value_is_copied(tmp_path: Path) -> None:
    state = odd_state()
    expected = fingerprint(state)
    with ShardSaver(tmp_path) as saver:
        for step in range(2):  # the second time into the memory of the first
            saver.save_async(state, step=step).wait()
            assert fingerprint(load_again(state, tmp_path)) == expected
        assert saver.save(state, step=2).training_step == 2
    assert fingerprint(load_again(state, tmp_path)) == expected


def test_tied_parameters_are_copied_once_and_shapes_may_change(tmp_path: Path) -> None:
    tied = torch.randn(50, 50)
    with ShardSaver(tmp_path) as saver:
        saver.save_async({"a": tied, "b": tied, "c": tied.t()}, step=0).wait()
        assert len(saver._staging._kept) == 2
        state = {"a": torch.randn(3), "b": tied.double()}
        saver.save_async(state, step=1).wait()
    assert fingerprint(load_again(state, tmp_path)) == fingerprint(state)


def test_a_save_that_overlaps_is_refused(tmp_path: Path, disk: Disk) -> None:
    state = {"w": torch.zeros(10)}
    with ShardSaver(tmp_path) as saver:
        disk.runs.clear()
        handle = saver.save_async(state, step=1)
        for save in (saver.save_async, saver.save):
            with pytest.raises(CheckpointError, match="the save of step 1 is still under way"):
                save(state, step=2)
        with pytest.raises(TimeoutError):
            handle.wait(0.01)
        disk.runs.set()
        handle.wait(60)
        assert saver.save(state, step=2).training_step == 2


def test_an_error_is_on_the_handle(tmp_path: Path, disk: Disk) -> None:
    state = {"w": torch.zeros(10)}
    with ShardSaver(tmp_path) as saver:
        before = saver.save(state, step=1)
        disk.error = "the disk is full"
        handle = saver.save_async({"w": torch.ones(10)}, step=2)
        with pytest.raises(CheckpointError, match="the disk is full"):
            handle.wait(60)
        with pytest.raises(CheckpointError, match="the disk is full"):
            _ = handle.committed
        with pytest.raises(CheckpointError, match="the disk is full"):
            handle.guard()
        disk.error = None
        assert CheckpointStore(tmp_path).head() == before
        # Whoever was told is not told again.
        saver.save_async(state, step=3).wait()


@pytest.mark.parametrize("how", ["save_async", "save", "close"])
def test_an_error_that_nobody_asked_for_is_raised_by_the_next_call(
    tmp_path: Path, disk: Disk, how: str
) -> None:
    state = {"w": torch.zeros(10)}
    saver = ShardSaver(tmp_path)
    disk.error = "the disk is full"
    handle = saver.save_async(state, step=1)
    while not handle._future.done():
        threading.Event().wait(0.01)
    disk.error = None
    with pytest.raises(CheckpointError, match="the disk is full"):
        saver.close() if how == "close" else getattr(saver, how)(state, step=2)
    if how != "close":
        assert saver.save(state, step=3).training_step == 3
    saver.close()


@pytest.mark.parametrize("how", ["disk", "value", "commit"])
def test_a_failed_save_leaves_no_unfinished_folder(tmp_path: Path, disk: Disk, how: str) -> None:
    """`checkpoint check` told it for a day as a save that was killed, or is under way."""

    def refuse(_manifest: Manifest) -> CheckpointRef:
        raise CheckpointError("not committed", hint="")

    store = CheckpointStore(tmp_path)
    with ShardSaver(store) as saver:
        before = saver.save({"w": torch.zeros(10)}, step=1)
        disk.error = "the disk is full" if how == "disk" else None
        state = {"w": torch.ones(10), **({"odd": object()} if how == "value" else {})}
        ends = SaveEnds(refuse) if how == "commit" else SaveEnds()
        for save in (saver.save, lambda *one, **more: saver.save_async(*one, **more).wait(60)):
            with pytest.raises(CheckpointError):
                save(state, step=2, ends=ends)
            assert list_unfinished(store) == []
        assert store.list_checkpoints() == [before]


def test_a_save_of_an_id_that_is_taken_leaves_the_other_one_alone(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    store.begin_checkpoint(2, "other")  # by a save that is under way
    with ShardSaver(store) as saver:
        first = saver.save({"w": torch.zeros(1)}, step=1, checkpoint="first")
        with pytest.raises(CheckpointError):
            saver.save({"odd": object()}, step=2, checkpoint="other")
        with pytest.raises(CheckpointError, match="holds a checkpoint already"):
            saver.save({"w": torch.ones(1)}, step=1, checkpoint="first")
    assert [path.name for path in list_unfinished(store)] == ["000000000002-other"]
    assert store.list_checkpoints() == [first]


def test_what_has_no_canonical_form_is_told_too(tmp_path: Path) -> None:
    with (
        pytest.raises(CheckpointError, match="'odd' is a object"),
        ShardSaver(tmp_path) as saver,
    ):
        saver.save_async({"odd": object()}, step=1)


def test_closing_waits_for_the_save(tmp_path: Path) -> None:
    with ShardSaver(tmp_path) as saver:
        saver.save_async({"w": torch.zeros(100_000)}, step=1)
    assert ShardReader(tmp_path).checkpoint.training_step == 1


def test_old_checkpoints_go_after_each_commit(tmp_path: Path) -> None:
    with ShardSaver(tmp_path, retention=Retention(2, every=4)) as saver:
        for step in range(8):
            saver.save_async({"w": torch.full((30_000,), float(step))}, step=step).wait()
    steps = [ref.training_step for ref in CheckpointStore(tmp_path).list_checkpoints()]
    assert steps == [0, 4, 6, 7]
    for step in steps:
        found = load({"w": torch.zeros(30_000)}, ShardReader(tmp_path, step=step))
        assert bool((found["w"] == step).all())


def test_the_old_one_stays_until_the_new_one_is_durable(tmp_path: Path, disk: Disk) -> None:
    """`latest` moved, and the last was purged, before the write had ended (KempnerForge #102)."""
    state = {"w": torch.zeros(1000)}
    with ShardSaver(tmp_path, retention=Retention(2)) as saver:
        refs = [saver.save({"w": state["w"] + step}, step=step) for step in range(2)]
        disk.runs.clear()
        handle = saver.save_async({"w": state["w"] + 2}, step=2)
        assert CheckpointStore(tmp_path).head() == refs[1]
        assert CheckpointStore(tmp_path).list_checkpoints() == refs
        assert bool((load_again(state, tmp_path)["w"] == 1).all())
        disk.runs.set()
        handle.wait(60)


def test_a_purge_that_fails_is_no_fault_of_the_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Rank 0 alone raised: each save was lost to its caller, and the other ranks had gone on."""

    def refuse(_store: CheckpointStore, _retention: Retention) -> None:
        raise CheckpointError("no permission", hint="mend it")

    with ShardSaver(tmp_path, retention=Retention(2)) as saver:
        with monkeypatch.context() as patch:
            patch.setattr(shard_saver, "apply_retention", refuse)
            for step in range(3):
                handle = saver.save_async({"w": torch.zeros(1)}, step=step)
                assert handle.wait(60) == CheckpointStore(tmp_path).head()
        (record,) = [one for one in caplog.records if one.name == "steplog.checkpoints"]
        assert "is committed, but older ones could not be taken away" in record.message
        assert "no permission (mend it)" in record.message
        saver.save({"w": torch.zeros(1)}, step=3)
    assert [one.training_step for one in CheckpointStore(tmp_path).list_checkpoints()] == [2, 3]


def test_a_full_disk_names_the_save_and_what_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error named a folder alone: which save was lost, and was the one before, too?"""
    state = {"w": torch.ones(3)}
    with ShardSaver(tmp_path) as saver:
        before = saver.save(state, step=1)

        def writev(*_: object) -> int:
            raise OSError(ENOSPC, strerror(ENOSPC))

        with monkeypatch.context() as patch:
            patch.setattr("os.writev", writev)
            state["w"] += 1
            with pytest.raises(
                CheckpointError, match=r"the save of step 2 failed: .*No space"
            ) as caught:
                saver.save(state, step=2)
        assert caught.value.step == 2
        assert caught.value.hint.endswith("free some space; what was committed before stands")
        assert CheckpointStore(tmp_path).head() == before
