"""What a save that failed has stored goes again: a full disk must not stay full of it."""

import os
from collections.abc import Callable
from errno import ENOSPC
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: torch checkpoints not shown")

import torch.distributed.checkpoint as dcp  # noqa: E402
from torch.distributed.checkpoint.api import CheckpointException  # noqa: E402

from eventlog.errors import CheckpointError  # noqa: E402
from snapshots.checkpoint_store import CheckpointStore  # noqa: E402
from snapshots.checkpoints.manifest import Manifest  # noqa: E402
from snapshots.interchange.export import export_checkpoint  # noqa: E402
from snapshots.interchange.safetensors_import import import_safetensors  # noqa: E402
from snapshots.save_handle import SaveEnds  # noqa: E402
from snapshots.shard_saver import ShardSaver  # noqa: E402
from snapshots.shard_writer import ShardWriter  # noqa: E402
from tests.support.torch_states import fingerprint, load_again  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is")

WRITES = 6


class FullDisk:
    """A disk that takes `WRITES` more objects once `fills` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fills = False
        self.left = WRITES
        writev = os.writev

        def write_until_full(descriptor: int, pieces: Any) -> int:
            self.left -= self.fills
            if self.left < 0:
                raise OSError(ENOSPC, os.strerror(ENOSPC))
            return writev(descriptor, pieces)

        monkeypatch.setattr("os.writev", write_until_full)


def state_of(number: int) -> dict[str, Any]:
    """Tensors of an object each; the first is the same for every number."""
    chance = torch.Generator().manual_seed(1)
    same = {"same": torch.rand(100_000, generator=chance)}
    chance.manual_seed(number)
    return same | {f"t{at}": torch.rand(100_000, generator=chance) for at in range(12)}


def objects_in(store: CheckpointStore) -> set[str]:
    return {one.digest for one in store.objects.list_objects()}


def refuse(_manifest: Manifest) -> Any:
    raise CheckpointError("not committed", hint="")


WAYS: dict[str, Callable[[ShardSaver, CheckpointStore], Any]] = {
    "save": lambda saver, _: saver.save(state_of(2), step=2),
    "save_async": lambda saver, _: saver.save_async(state_of(2), step=2).wait(60),
    "commit": lambda saver, _: saver.save(state_of(2), step=2, ends=SaveEnds(refuse)),
    "dcp.save": lambda _, store: dcp.save(state_of(2), storage_writer=ShardWriter(store, step=2)),
}


@pytest.mark.parametrize("how", WAYS)
def test_a_disk_that_was_full_is_not_left_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Each try to save left its objects, which gc spared for a day: no later one could be saved."""
    store = CheckpointStore(tmp_path)
    disk = FullDisk(monkeypatch)
    with ShardSaver(store) as saver:
        saver.save(state_of(1), step=1)
        before = objects_in(store)
        disk.fills = how != "commit"
        with pytest.raises((CheckpointError, CheckpointException)):
            WAYS[how](saver, store)
        assert objects_in(store) == before
        disk.fills = False
        disk.left = WRITES
        assert fingerprint(load_again(state_of(1), tmp_path)) == fingerprint(state_of(1))
        saver.save(state_of(3), step=3)
    assert fingerprint(load_again(state_of(3), tmp_path)) == fingerprint(state_of(3))


@pytest.mark.parametrize("how", ["written again", "of another track", "unknown"])
def test_what_another_save_may_need_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    store, other = CheckpointStore(tmp_path), CheckpointStore(tmp_path, "other")
    stays: set[str] = set()

    def let_another_save_and_refuse(manifest: Manifest) -> Any:
        found = list(manifest.objects())
        if how == "written again":  # by a save that is about to name it
            again = store.objects.put_object([store.objects.get_object(found[0])])
            stays.add(again.digest)
        else:
            stays.update(one.digest for one in found)
            kept = other.keep_manifest(manifest)
            if how == "unknown":  # nobody can tell what is needed
                (other.set_folder(kept) / "manifest.json").write_bytes(b"{}")
        raise CheckpointError("not committed", hint="")

    with ShardSaver(store) as saver, pytest.raises(CheckpointError, match="not committed"):
        saver.save(state_of(1), step=1, ends=SaveEnds(let_another_save_and_refuse))
    assert objects_in(store) == stays
    warned = [one.message for one in caplog.records if one.name == "steplog.checkpoints"]
    assert ["gc --grace 10m" in one for one in warned] == [True] * (how == "unknown")


def test_an_import_that_failed_leaves_nothing_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, into = CheckpointStore(tmp_path / "from"), CheckpointStore(tmp_path / "into")
    with ShardSaver(store) as saver:
        ref = saver.save(state_of(1), step=1)
    export_checkpoint(store, ref, tmp_path / "exported")
    disk = FullDisk(monkeypatch)
    disk.fills = True
    with pytest.raises(CheckpointError, match="No space left"):
        import_safetensors(into, tmp_path / "exported", step=1)
    assert objects_in(into) == set()
