"""Folders that another framework's save has finished, adopted as checkpoint sets of a training."""

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: torch checkpoints not shown")

import torch.distributed.checkpoint as dcp  # noqa: E402

from eventlog.errors import CheckpointError  # noqa: E402
from replay.workspace import Workspace, open_workspace  # noqa: E402
from snapshots.checkpoint_config import CheckpointConfig  # noqa: E402
from snapshots.checkpoint_retention import collect_garbage  # noqa: E402
from snapshots.sample_order import SampleOrder  # noqa: E402
from snapshots.sets.adopted_folder import hash_folder  # noqa: E402
from snapshots.training_run import TrainingRun  # noqa: E402
from tests.support.command import Command  # noqa: E402

pytestmark = pytest.mark.filterwarnings(
    "ignore:torch.distributed is",
    "ignore:TypedStorage is deprecated",  # what torch 2.6 writes its folders with
)


class Desk:
    """An environment and a training that saves its weights by itself."""

    def __init__(self, ws: Workspace, name: str = "desk/1") -> None:
        torch.manual_seed(1)
        self.model = torch.nn.Linear(30, 20)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.scheduler = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.5)
        self.data = SampleOrder(50, batch_size=5, seed=3)
        self.orders = {"n": 0}
        fields: dict[str, Any] = {"environment": "desk", "training": "run-1"}
        self.session = ws.record(name, state=lambda: self.orders, **fields)

    def step(self) -> None:
        self.optimizer.zero_grad()
        self.model(torch.randn(5, 30)).square().mean().backward()
        self.optimizer.step()
        self.scheduler.step()
        with self.session.call("sell", {"batch": self.data.next_batch()}):
            self.orders["n"] += 1
        self.session.flush()

    def own(self) -> dict[str, Any]:
        return {"scheduler": self.scheduler, "data": self.data}


def by_dcp(desk: Desk, folder: Path) -> None:
    dcp.save({"model": desk.model.state_dict()}, checkpoint_id=folder)


def by_torch(desk: Desk, folder: Path) -> None:
    folder.mkdir()
    torch.save({"model": desk.model.state_dict()}, folder / "weights.pt")


def by_others(desk: Desk, folder: Path) -> None:
    (folder / "rank-0" / "shards").mkdir(parents=True)
    (folder / "empty").mkdir()
    (folder / "rank-0" / "shards" / "0.bin").write_bytes(random.Random(1).randbytes(3_000_000))
    (folder / "rank-0" / "names.json").write_text("[]")
    (folder / "done").touch()
    torch.save(desk.model.state_dict(), folder / "rank-0" / "w ü.pt")


def load_dcp(folder: Path, model: Any) -> None:
    state = {"model": model.state_dict()}
    dcp.load(state, checkpoint_id=folder)
    model.load_state_dict(state["model"])


def load_torch(folder: Path, model: Any) -> None:
    model.load_state_dict(torch.load(folder / "weights.pt", weights_only=True)["model"])


def load_others(folder: Path, model: Any) -> None:
    model.load_state_dict(torch.load(folder / "rank-0" / "w ü.pt", weights_only=True))


@pytest.mark.parametrize(
    ("save", "load"),
    [(by_dcp, load_dcp), (by_torch, load_torch), (by_others, load_others)],
    ids=["dcp", "torch", "others"],
)
def test_a_finished_folder_comes_back_with_all_that_steplog_knows(
    tmp_path: Path, save: Callable[[Desk, Path], None], load: Callable[[Path, Any], None]
) -> None:
    theirs = tmp_path / "theirs"
    with open_workspace(tmp_path / "ws") as ws, ws.training("run-1") as run:
        desk = Desk(ws)
        for _ in range(3):
            desk.step()
        save(desk, theirs)
        before = hash_folder(theirs)
        handle = run.adopt(3, theirs, **desk.own(), progress={"tokens": 99})
        ref = handle.wait()
        assert handle.committed == ref == run.checkpoints.head()
        weights = {name: one.clone() for name, one in desk.model.state_dict().items()}
        rate, batch = desk.scheduler.get_last_lr(), desk.data.next_batch()
        noise = torch.randn(3)
        desk.step()
    with open_workspace(tmp_path / "ws") as ws, ws.training("run-1") as run:
        desk = Desk(ws, "desk/2")
        restored = run.restore_latest(**desk.own())
        assert restored is not None
        assert restored.adopted == theirs
        assert (restored.set_id, restored.step, restored.progress) == (ref.id, 3, {"tokens": 99})
        assert restored.later_sessions == ("desk/2",)
        load(restored.adopted, desk.model)
        restored.restore_random()
        for name, one in desk.model.state_dict().items():
            assert torch.equal(one, weights[name])
        assert (desk.scheduler.get_last_lr(), desk.data.next_batch()) == (rate, batch)
        assert torch.equal(torch.randn(3), noise)
        assert list(restored.sessions) == ["desk/1"]
        assert ws.replay("desk/1").state == {"n": 3}, "the session was not taken back"
        assert hash_folder(theirs) == before
        assert [report for report in ws.check() if report.verdict != "ok"] == []


def test_weights_are_not_sought_where_the_set_has_none(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    with open_workspace(tmp_path / "ws") as ws, ws.training("run-1") as run:
        desk = Desk(ws)
        by_torch(desk, theirs)
        run.adopt(1, theirs).wait()
        with pytest.raises(CheckpointError, match="adopted folder") as error:
            run.restore_latest(model=desk.model)
        assert str(theirs) in error.value.message
        assert ".adopted" in error.value.hint


def test_the_command_says_that_a_set_is_adopted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs = tmp_path / "theirs"
    with open_workspace(tmp_path / "ws") as ws, ws.training("run-1") as run:
        desk = Desk(ws)
        by_torch(desk, theirs)
        run.adopt(1, theirs).wait()
    steplog = Command(tmp_path / "ws", capsys)
    assert "set of run-1, adopted" in steplog("checkpoint", "list").out
    assert steplog("checkpoint", "list", "--json").row["adopted"] == str(theirs)
    assert steplog("checkpoint", "check").code == 0
    ran = steplog("checkpoint", "export", "step:1", tmp_path / "out")
    assert (ran.code, f"in the adopted folder {theirs}" in ran.err) == (2, True), ran.err


def change(theirs: Path) -> str:
    path = theirs / "rank-0" / "shards" / "0.bin"
    data = bytearray(path.read_bytes())
    data[1_234_567] ^= 1
    path.write_bytes(data)
    return "rank-0/shards/0.bin"


def cut_off(theirs: Path) -> str:
    os.truncate(theirs / "rank-0" / "names.json", 1)
    return "rank-0/names.json"


def lose(theirs: Path) -> str:
    (theirs / "done").unlink()
    return "done"


def add(theirs: Path) -> str:
    (theirs / "rank-0" / "more.bin").write_bytes(b"x")
    return "rank-0/more.bin"


def rename(theirs: Path) -> str:
    (theirs / "done").rename(theirs / "finished")
    return "done, finished"


def link(theirs: Path) -> str:
    (theirs / "rank-0" / "names.json").rename(theirs.parent / "names.json")
    (theirs / "rank-0" / "names.json").symlink_to(theirs.parent / "names.json")
    return "rank-0/names.json is a link"


def link_to_folder(theirs: Path) -> str:
    (theirs / "rank-0").rename(theirs.parent / "rank-0")
    (theirs / "rank-0").symlink_to(theirs.parent / "rank-0")
    return "rank-0 is a link"


def pipe(theirs: Path) -> str:
    (theirs / "done").unlink()
    os.mkfifo(theirs / "done")
    return "done is a link or no file"


def take_away(theirs: Path) -> str:
    theirs.rename(theirs.parent / "elsewhere")
    return "theirs"


CHANGES = [change, cut_off, lose, add, rename, link, link_to_folder, pipe, take_away]


@pytest.mark.parametrize("spoil", CHANGES, ids=lambda one: one.__name__)
def test_a_folder_that_is_not_what_was_adopted_is_refused_by_name(
    tmp_path: Path, spoil: Callable[[Path], str], capsys: pytest.CaptureFixture[str]
) -> None:
    theirs = tmp_path / "theirs"
    with open_workspace(tmp_path / "ws") as ws:
        with ws.training("run-1") as run:
            desk = Desk(ws)
            desk.step()
            run.checkpoint(1, model=desk.model, **desk.own()).wait()
            desk.step()
            by_others(desk, theirs)
            run.adopt(2, theirs, **desk.own()).wait()
            desk.step()
            end = ws.session("desk/1").head
        named = spoil(theirs)
        with ws.training("run-1") as run:
            position = desk.data.state_dict()
            with pytest.raises(CheckpointError) as error:
                run.restore_latest(**desk.own())
            assert named in error.value.message
            assert str(theirs) in error.value.message
            assert error.value.hint
            assert "cannot be adopted" not in error.value.message
            assert "adopt a folder" not in error.value.hint
            # Nothing was brought back: neither the data nor the sessions.
            assert desk.data.state_dict() == position
            assert ws.session("desk/1").head == end
            # The set before it is there, for who asks for it.
            older = run.checkpoints.list_checkpoints()[0]
            restored = run.restore(older.id, model=desk.model, **desk.own())
            assert (restored.step, restored.adopted) == (1, None)
        # It was told to be sound: what is not in the folder of checkpoints was not looked at.
        ran = Command(tmp_path / "ws", capsys)("checkpoint", "check", "step:2")
        assert (ran.code, named in ran.err) == (6 if spoil is take_away else 4, True), ran.err


def empty(theirs: Path) -> str:
    (theirs / "below").mkdir(parents=True)
    return "it holds no file"


def missing(theirs: Path) -> str:
    return "No such file"


def a_file(theirs: Path) -> str:
    theirs.write_bytes(b"x")
    return "NotADirectory"


def with_link(theirs: Path) -> str:
    theirs.mkdir()
    (theirs / "w").write_bytes(b"x")
    (theirs / "latest").symlink_to("w")
    return "latest is a link"


@pytest.mark.parametrize("make", [empty, missing, a_file, with_link], ids=lambda one: one.__name__)
def test_what_is_no_finished_folder_is_not_adopted(
    tmp_path: Path, make: Callable[[Path], str]
) -> None:
    theirs = tmp_path / "theirs"
    said = make(theirs)
    with open_workspace(tmp_path / "ws") as ws, ws.training("run-1") as run:
        sessions = [info.session_id for info in ws.sessions()]
        with pytest.raises(CheckpointError, match="cannot be adopted") as error:
            run.adopt(1, theirs)
        assert said in error.value.message
        assert [info.session_id for info in ws.sessions()] == sessions, "a set was begun"
        assert run.restore_latest() is None


def test_what_retention_lets_go_is_steplogs_and_never_the_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_workspace(tmp_path / "ws") as ws:
        with ws.training("run-1", config=CheckpointConfig(keep_last_n=2)) as run:
            desk = Desk(ws)
            kept = adopt_six(desk, run, tmp_path)
            assert [ref.training_step for ref in run.checkpoints.list_checkpoints()] == [5, 6]
            collect_garbage(run.checkpoints)
            assert [hash_folder(folder) for folder in kept] == list(kept.values())
            newest = run.checkpoints.list_checkpoints()[-1]
        with ws.training("trial") as branch:
            restored = branch.branch_from("run-1", newest.id, **desk.own())
            assert restored.adopted == list(kept)[-1]
    steplog = Command(tmp_path / "ws", capsys)
    rows = steplog.rows("checkpoint", "list")
    assert [row["step"] for row in rows] == [5, 6]


def adopt_six(desk: Desk, run: TrainingRun, tmp_path: Path) -> dict[Path, Any]:
    kept: dict[Path, Any] = {}
    for step in range(1, 7):
        desk.step()
        folder = tmp_path / f"step-{step}"
        by_others(desk, folder)
        kept[folder] = hash_folder(folder)
        run.adopt(step, folder, **desk.own()).wait()
    return kept
