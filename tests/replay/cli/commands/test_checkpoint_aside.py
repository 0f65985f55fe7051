"""`steplog checkpoint set-aside`: what is damaged leaves the way, and nothing is deleted."""

from pathlib import Path

import pytest

from snapshots.checkpoint_store import CheckpointStore
from snapshots.checkpoints.manifest import CheckpointRef
from tests.support.checkpoint_parts import write_checkpoint
from tests.support.command import Command


@pytest.fixture
def store(steplog: Command) -> CheckpointStore:
    steplog.open().close()
    return CheckpointStore(Path(steplog.workspace) / "checkpoints")


@pytest.fixture
def refs(store: CheckpointStore) -> list[CheckpointRef]:
    return [write_checkpoint(store, step, {"w": bytes([step])}) for step in range(3)]


def damage(store: CheckpointStore, ref: CheckpointRef) -> Path:
    folder = store.set_folder(ref)
    (folder / "manifest.json").write_bytes(b"{}")
    return folder


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("named", ["id", "folder", "step", "track", "pin"])
def test_a_damaged_one_is_moved_whole(
    steplog: Command, store: CheckpointStore, refs: list[CheckpointRef], named: str
) -> None:
    store.pin("best", refs[1])
    folder = damage(store, refs[1])
    names = {"id": refs[1].id, "folder": folder.name, "step": "step:1", "pin": "pin:best"}
    before = files(folder)
    ran = steplog("checkpoint", "set-aside", names.get(named, f"./{folder.name}"), "--json")
    assert ran.code == 0, ran.err
    assert ran.row == {
        "track": None,
        "id": refs[1].id,
        "step": 1,
        "status": "damaged",
        "folder": f"aside/{folder.name}",
    }
    assert files(store.folder / "aside" / folder.name) == before
    assert store.list_checkpoints() == [refs[0], refs[2]]
    assert "later gc" in ran.err
    ran = steplog("checkpoint", "gc", "--grace", "0s", "--json")
    assert (ran.code, ran.row["objects"]) == (0, 1)
    (store.folder / "aside" / folder.name).rename(folder)
    assert steplog("checkpoint", "list").code == 4


def test_two_of_one_name_do_not_meet(
    steplog: Command, store: CheckpointStore, refs: list[CheckpointRef]
) -> None:
    folder = damage(store, refs[1])
    steplog("checkpoint", "set-aside", refs[1].id)
    folder.mkdir()
    (folder / "manifest.json").write_bytes(b"other")
    assert steplog("checkpoint", "set-aside", refs[1].id).code == 0
    found = {path.name for path in (store.folder / "aside").iterdir()}
    assert found == {folder.name, f"{folder.name}.2"}


def test_what_is_in_nobodys_way_stays(
    steplog: Command, store: CheckpointStore, refs: list[CheckpointRef]
) -> None:
    store.begin_checkpoint(9, "begun")
    for name, why in ((refs[0].id, "can be read"), ("begun", "under way")):
        ran = steplog("checkpoint", "set-aside", name)
        assert (ran.code, why in ran.err) == (2, True), ran.err
    assert steplog("checkpoint", "set-aside", "none").code == 6
    assert not (store.folder / "aside").exists()
    write_checkpoint(store, 0, {"w": b"again"})
    ran = steplog("checkpoint", "set-aside", "step:0", "--force")
    assert (ran.code, refs[0].id in ran.err) == (2, True)
    for name in (refs[0].id, "begun"):
        assert steplog("checkpoint", "set-aside", name, "--force").code == 0
    assert refs[0] not in store.list_checkpoints()
