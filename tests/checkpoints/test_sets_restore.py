"""Sets of one process: what comes back, from which log, and what is refused before anything moves.

Two trainers here are two handles of one workspace, as two processes would have.
"""

import shutil
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: checkpoint sets not shown")

import numpy  # noqa: E402

from eventlog.errors import (  # noqa: E402
    CheckpointError,
    CheckpointIncompleteError,
)
from eventlog.recorder import SessionRecorder  # noqa: E402
from replay.workspace import Workspace, open_workspace  # noqa: E402
from snapshots.checkpoint_config import CheckpointConfig  # noqa: E402
from snapshots.checkpoint_store import CheckpointStore  # noqa: E402
from snapshots.checkpoints.manifest import CheckpointRef  # noqa: E402
from snapshots.checkpoints.object_folder import ObjectFolder  # noqa: E402
from snapshots.sets.restoring import require_same_log  # noqa: E402
from snapshots.training_run import TrainingRun  # noqa: E402
from tests.support.set_toy import Toy, play, save_at, toy_at  # noqa: E402
from tests.support.torch_states import fingerprint  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is")

NAME = "run"
BACKGROUND = CheckpointConfig(async_save=True, timeout_s=20)


def open_session(ws: Workspace, name: str, calls: int = 1) -> SessionRecorder:
    session = ws.record(name, environment="toy", state={"n": 0}, training=NAME)
    play(session, calls)
    return session


def restored_toy(run: TrainingRun, set_id: str | None = None, **more: Any) -> tuple[Toy, Any]:
    toy = Toy()
    if set_id is None:
        restored = run.restore_latest(**toy.objects(), **more)
    else:
        restored = run.restore(set_id, **toy.objects(), **more)
    if restored is not None:
        toy.step = restored.step
        assert toy.seen() == toy_at(restored.step)
    return toy, restored


class Crash(BaseException):
    """The process is gone: nothing after it runs."""


def crash() -> None:
    raise Crash


def stands_at(ws: Workspace, name: str) -> int:
    """The step that the session was rewound to; nothing but the claim and its release follow."""
    kinds = [event.kind for event in ws.events(name)]
    assert kinds[-2:] == ["session_resumed", "session_released"], kinds
    return len(kinds) - 3


# What comes back


def test_one_set_twice_and_an_older_one_after_a_newer_one(ws: Workspace, other: Workspace) -> None:
    """After a crash right after that, the older one is what training goes on from."""
    session = open_session(ws, "env")
    with suppress(Crash), ws.training(NAME) as run:
        toy = Toy()
        older = save_at(run, toy, 1)
        at_older = session.step
        play(session, 3)
        newer = save_at(run, toy, 2)
        at_newer = session.step
        play(session, 2)
        assert restored_toy(run)[1].set_id == newer
        assert stands_at(ws, "env") == at_newer
        crash()
    for _ in range(2):
        with suppress(Crash), other.training(NAME) as run:
            assert restored_toy(run)[1].set_id == newer
            assert stands_at(ws, "env") == at_newer
            assert restored_toy(run, older)[1].set_id == older
            assert stands_at(ws, "env") == at_older
            assert run.checkpoints.head().id == older  # type: ignore[union-attr]
            crash()
        with suppress(Crash), other.training(NAME) as run:
            assert restored_toy(run)[1].set_id == older
            assert stands_at(ws, "env") == at_older
            restored_toy(run, newer)
            crash()
    with other.training(NAME) as run:
        restored_toy(run, older)
        play(ws.resume("env"), 2)
        toy, _ = restored_toy(run)
        assert save_at(run, toy, 2) != newer
    with ws.training(NAME) as run:
        assert restored_toy(run)[1].set_id not in (older, newer)
    assert all(report.verdict == "ok" for report in ws.check())


def test_sessions_that_began_closed_or_branched(ws: Workspace) -> None:
    """Begun after the cut: left as they are and told. Closed after it: open again. Branches too."""
    parent, closes = open_session(ws, "parent", 3), open_session(ws, "closes", 2)
    ended = open_session(ws, "ended")
    ended.__exit__(None, None, None)
    branch_id = ws.fork("parent", 2)
    branch = ws.resume(branch_id)
    play(branch, 2)
    fresh_branch = ws.fork("parent", 3)
    with ws.training(NAME) as run:
        toy = Toy()
        ref = save_at(run, toy, 1, sessions=["parent", "closes", branch_id, fresh_branch])
        entry = run.checkpoints.read_manifest(run.checkpoints.find_checkpoint(checkpoint=ref)).set
        assert entry is not None
        assert entry.sessions[branch_id].fork_event is not None
        stood = {name: one.step for name, one in entry.sessions.items()}
        play(parent, 2)
        play(branch, 3)
        play(closes)
        closes.__exit__(None, None, None)
        assert ws.session("closes").status == "closed"
        later = open_session(ws, "later", 4)
        before = ws.session("later").head
        _, restored = restored_toy(run)
        assert restored.later_sessions == ("later",)
        assert ws.session("later").head == before
        play(later)
        for name, step in stood.items():
            line = list(ws.log.read_session(name, 0, step + 1))
            assert line[-1].digest == entry.sessions[name].event_digest, name
            assert ws.session(name).status == "released", name
            play(ws.resume(name))
        assert ws.session("ended").status == "closed"
    assert all(report.verdict == "ok" for report in ws.check())


def test_open_calls_are_told_to_who_resumes(ws: Workspace) -> None:
    session = open_session(ws, "env")
    waiting = session.record_tool_call("wait", {})
    play(session)
    with ws.training(NAME) as run:
        save_at(run, Toy(), 1)
        session.record_tool_return(waiting, "late", state={"n": -1})
        restored_toy(run)
    again = ws.resume("env")
    assert [call.step for call in again.open_calls] == [waiting]
    assert again.state != {"n": -1}


def test_several_models_and_optimizers_tied_frozen_and_bf16(ws: Workspace) -> None:
    def build() -> dict[str, Any]:
        policy = torch.nn.ModuleDict(
            {"a": torch.nn.Linear(4, 4, bias=False), "b": torch.nn.Linear(4, 4, bias=False)}
        ).bfloat16()
        policy["b"].weight = policy["a"].weight
        critic = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
        critic[0].bias.requires_grad_(False)
        trained = [one for one in critic.parameters() if one.requires_grad]
        return {
            "model": {"policy": policy, "critic": critic},
            "optimizer": {
                "policy": torch.optim.SGD(policy.parameters(), lr=0.5, momentum=0.9),
                "critic": torch.optim.Adam(
                    [{"params": trained[:1], "lr": 0.25}, {"params": trained[1:]}], amsgrad=True
                ),
            },
        }

    def train(objects: dict[str, Any]) -> None:
        x = torch.randn(5, 4)
        hidden = objects["model"]["policy"]["b"](x.bfloat16()).float()
        objects["model"]["critic"](hidden).square().sum().backward()
        for one in objects["optimizer"].values():
            one.step()
            one.zero_grad()

    def seen(objects: dict[str, Any]) -> Any:
        return {
            what: {name: fingerprint(_sorted(one.state_dict())) for name, one in owners.items()}
            for what, owners in objects.items()
        }

    objects = build()
    numbers = numpy.random.default_rng(3)
    extra = {"ema": torch.randn(3), "note": [1, {"x": (2, 3)}]}
    with ws.training(NAME) as run:
        for _ in range(3):
            train(objects)
        run.checkpoint(3, **objects, extra=extra, generators={"numbers": numbers}, data={"at": 7})
        expected, drawn = seen(objects), numbers.integers(1000, size=9).tolist()
        expected_extra = fingerprint(extra)
        train(objects)
        after, others = seen(objects), torch.randn(4)
        again, data = build(), {"at": 0}
        into = {"ema": torch.zeros(3), "note": [0, {"x": ()}]}
        fresh = numpy.random.default_rng(99)
        run.restore_latest(**again, extra=into, generators={"numbers": fresh}, data=data)
        assert seen(again) == expected
        assert fingerprint(into) == expected_extra
        assert data == {"at": 7}
        assert fresh.integers(1000, size=9).tolist() == drawn
        assert again["model"]["policy"]["a"].weight is again["model"]["policy"]["b"].weight
        train(again)
        assert seen(again) == after
        assert torch.equal(torch.randn(4), others)


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value, key=str)}
    return value


def test_a_fresh_optimizer_stays_fresh(ws: Workspace) -> None:
    toy = Toy()
    with ws.training(NAME) as run:
        run.checkpoint(0, **toy.objects())
        assert not toy.optimizer.state
        stepped = Toy()
        stepped.advance()
        run.restore_latest(**stepped.objects())
        assert not stepped.optimizer.state
        stepped.step = 0
        assert stepped.seen() == toy_at(0)


def test_names_are_those_of_the_model_that_is_wrapped(ws: Workspace) -> None:
    """torch.compile puts a prefix before every name."""
    toy = Toy()
    toy.advance()
    with ws.training(NAME) as run:
        compiled = torch.compile(toy.model, backend="eager")
        run.checkpoint(1, model=compiled, optimizer=toy.optimizer, scheduler=toy.scheduler)
        restored_toy(run)
        again = Toy()
        run.restore_latest(
            model=torch.compile(again.model, backend="eager"),
            optimizer=again.optimizer,
            scheduler=again.scheduler,
        )
        assert again.seen() == toy_at(1)


def test_without_dist_checkpoint_it_is_the_same(ws: Workspace) -> None:
    with ws.training(NAME, config=CheckpointConfig(dist_checkpoint=False)) as run:
        save_at(run, Toy(), 2)
        restored_toy(run)


# What is refused


def _other_names(toy: Toy) -> None:
    toy.model = torch.nn.Sequential(toy.model)


def _fewer_names(toy: Toy) -> None:
    toy.model = toy.model[:1]
    toy.optimizer = torch.optim.AdamW(toy.model.parameters())


def _other_shape(toy: Toy) -> None:
    toy.model[1] = torch.nn.Linear(7, 4, bias=False)
    toy.optimizer = torch.optim.AdamW(toy.model.parameters())


def _other_dtype(toy: Toy) -> None:
    toy.model.double()


def _other_groups(toy: Toy) -> None:
    first, *rest = toy.model.parameters()
    toy.optimizer = torch.optim.AdamW([{"params": [first]}, {"params": rest}])


def _other_order(toy: Toy) -> None:
    toy.optimizer = torch.optim.AdamW(reversed(list(toy.model.parameters())))


@pytest.mark.parametrize(
    "change",
    [_other_names, _fewer_names, _other_shape, _other_dtype, _other_groups, _other_order],
)
def test_another_model_is_refused_before_anything_is_changed(
    ws: Workspace, change: Callable[[Toy], None]
) -> None:
    session = open_session(ws, "env")
    with ws.training(NAME) as run:
        save_at(run, Toy(), 2)
        play(session)
        head = ws.session("env").head
        toy = Toy()
        change(toy)
        before, random = toy.seen(), torch.get_rng_state()
        with pytest.raises(CheckpointError):
            run.restore_latest(**toy.objects())
        assert toy.seen() == before
        assert torch.equal(torch.get_rng_state(), random)
        assert ws.session("env").head == head
        play(session)


def test_a_restore_that_was_refused_is_not_what_training_goes_on_from(ws: Workspace) -> None:
    """The older set was asked for, into another model: the newest stays the newest."""
    with ws.training(NAME) as run:
        toy = Toy()
        older, newer = save_at(run, toy, 1), save_at(run, toy, 2)
        wrong = Toy()
        _other_names(wrong)
        with pytest.raises(CheckpointError, match="which the model has not"):
            run.restore(older, **wrong.objects())
        assert run.checkpoints.head().id == newer  # type: ignore[union-attr]
    with ws.training(NAME) as run:
        assert restored_toy(run)[1].set_id == newer


def test_a_restore_while_a_save_is_under_way_is_refused(
    ws: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the save would be committed after it, and what was left behind would be the newest."""
    with ws.training(NAME, config=BACKGROUND) as run:
        toy = Toy()
        older = save_at(run, toy, 1)
        runs = slow_disk(monkeypatch)
        toy.advance()
        handle = run.checkpoint(2, **toy.objects())
        with pytest.raises(CheckpointError, match="still under way"):
            run.restore(older, **toy.objects())
        with pytest.raises(CheckpointError, match="still under way"):
            run.restore_latest(**toy.objects())
        assert toy.seen() == toy_at(2)
        runs.set()
        assert handle.wait(30) == run.checkpoints.head()
        restored_toy(run, older)


def test_a_restore_while_the_first_save_is_under_way_is_refused_too(
    ws: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There was no set yet: it gave None, as if the training had nothing to go on from."""
    with ws.training(NAME, config=BACKGROUND) as run:
        toy = Toy()
        runs = slow_disk(monkeypatch)
        toy.advance()
        handle = run.checkpoint(1, **toy.objects())
        for restore in (run.restore_latest, lambda **into: run.restore("of-nothing", **into)):
            with pytest.raises(CheckpointError, match="the save of step 1 is still under way"):
                restore(**toy.objects())
        runs.set()
        handle.wait(30)
        restored_toy(run)


def slow_disk(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    runs, keep = threading.Event(), ObjectFolder.keep_objects

    def keep_objects(folder: ObjectFolder, written: Any) -> None:
        assert runs.wait(60)
        keep(folder, written)

    monkeypatch.setattr(ObjectFolder, "keep_objects", keep_objects)
    return runs


def test_a_log_that_is_not_the_sets_own_is_refused_by_name(tmp_path: Path, ws: Workspace) -> None:
    open_session(ws, "env-a")
    with ws.training(NAME) as run:
        save_at(run, Toy(), 1)
    folder = tmp_path / "ws" / "checkpoints"
    with open_workspace(tmp_path / "elsewhere") as foreign:
        # Another workspace that happens to know the same names.
        open_session(foreign, "env-a")
        with foreign.training(NAME, checkpoints=folder) as run:
            set_id = CheckpointStore(folder, run.checkpoints.track).head().id  # type: ignore[union-attr]
            for restore in (run.restore_latest, lambda **into: run.restore(set_id, **into)):
                with pytest.raises(CheckpointError, match=set_id):
                    restore(**Toy().objects())
    with ws.training(NAME) as run:
        restored_toy(run)


def test_a_session_that_the_log_lost_is_named(tmp_path: Path, ws: Workspace) -> None:
    """An old copy of the log is put back: the set knows events that are not there."""
    session = open_session(ws, "env-b")
    with ws.training(NAME) as run:
        save_at(run, Toy(), 1)
    ws.close()
    shutil.copytree(tmp_path / "ws", tmp_path / "old")
    with open_workspace(tmp_path / "ws") as again:
        session = again.resume("env-b")
        play(session, 3)
        with again.training(NAME) as run:
            toy, _ = restored_toy(run)
            play(again.resume("env-b"), 3)
            save_at(run, toy, 2)
    shutil.rmtree(tmp_path / "old" / "checkpoints")
    shutil.copytree(tmp_path / "ws" / "checkpoints", tmp_path / "old" / "checkpoints")
    with open_workspace(tmp_path / "old") as old, old.training(NAME) as run:
        newest = run.checkpoints.find_checkpoint(step=2).id
        with pytest.raises(CheckpointError, match=newest):
            run.restore(newest, **Toy().objects())
        with pytest.raises(CheckpointError, match=newest):
            run.restore_latest(**Toy().objects())


def test_a_session_that_is_another_in_this_log_is_named(ws: Workspace) -> None:
    """No mix: each session must have had that event at that step, whatever its line is now."""
    session = open_session(ws, "env-a")
    digests = [record.digest for record in ws.log.read_session("env-a")]
    with ws.training(NAME) as run:
        save_at(run, Toy(), 1)
        ref = run.checkpoints.find_checkpoint()
        entry = run.checkpoints.read_manifest(ref).set
        assert entry is not None
        play(session, 2)
        require_same_log(ws.log, ref.id, entry)
        here = entry.sessions["env-a"]
        for name, position in (
            ("env-b", here),  # not there
            ("env-a", here._replace(event_digest=digests[0])),  # of another step
            ("env-a", here._replace(step=here.step + 1)),
            ("env-a", here._replace(step=here.step + 99)),
            ("env-a", here._replace(event_digest=bytes(32))),
            (NAME, here),
        ):
            mixed = entry._replace(sessions={**entry.sessions, name: position})
            with pytest.raises(CheckpointError, match=f"not of this log: session {name!r}"):
                require_same_log(ws.log, ref.id, mixed)


def test_a_manifest_of_another_training_is_refused(ws: Workspace) -> None:
    with ws.training("theirs") as theirs:
        set_id = save_at(theirs, Toy(), 7)
        source = theirs.checkpoints.set_folder(theirs.checkpoints.find_checkpoint())
    with ws.training(NAME) as run:
        own = save_at(run, Toy(), 1)
        shutil.copytree(source, run.checkpoints.track_folder / "sets" / source.name)
        with pytest.raises(CheckpointError, match=set_id):
            run.restore(set_id, **Toy().objects())
        assert restored_toy(run)[1].set_id == own


def test_a_set_that_the_log_has_committed_and_whose_files_are_gone(ws: Workspace) -> None:
    """To begin from nothing would be silent (verl #4667, #7952)."""
    with ws.training(NAME) as run:
        toy = Toy()
        save_at(run, toy, 1)
        save_at(run, toy, 2)
        shutil.rmtree(run.checkpoints.set_folder(run.checkpoints.find_checkpoint()))
    with ws.training(NAME) as run, pytest.raises(CheckpointIncompleteError):
        run.restore_latest(**Toy().objects())
    shutil.rmtree(ws.folder / "checkpoints")
    with ws.training(NAME) as run, pytest.raises(CheckpointIncompleteError):
        run.restore_latest(**Toy().objects())


def test_a_damaged_object_is_named_and_no_session_moves(ws: Workspace) -> None:
    session = open_session(ws, "env")
    with ws.training(NAME) as run:
        save_at(run, Toy(), 1)
        play(session)
        head = ws.session("env").head
        manifest = run.checkpoints.read_manifest(run.checkpoints.find_checkpoint())
        stored = next(iter(manifest.objects()))
        path = run.checkpoints.objects.object_path(stored.digest)
        path.chmod(0o644)
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
        with pytest.raises(CheckpointError):
            run.restore_latest(**Toy().objects())
        assert ws.session("env").head == head


def test_a_manifest_is_read_once_for_each_thing_it_is_asked_for(
    ws: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be of 256 MiB: read to see that all is in place, to load, and under HEAD's lock."""
    read: list[str] = []
    real = CheckpointStore.read_manifest

    def counted(store: CheckpointStore, ref: CheckpointRef) -> Any:
        read.append(ref.id)
        return real(store, ref)

    with ws.training(NAME) as run:
        toy = Toy()
        older, newer = save_at(run, toy, 1), save_at(run, toy, 2)
        monkeypatch.setattr(CheckpointStore, "read_manifest", counted)
        restored_toy(run)
        assert read == [newer] * 3
        read.clear()
        restored_toy(run, older)
        assert read == [older] * 2, "an id's manifest is in place where it is loaded"
        run.publish_policy(1, toy.model)
        read.clear()
        run.restore_policy(1, toy.model)
        assert len(read) == 1
    with ws.training("branch") as branch:
        read.clear()
        branch.branch_from(NAME, newer, **Toy().objects())
        assert read == [newer] * 2, "loaded, and pinned"


def test_nothing_was_ever_saved(ws: Workspace) -> None:
    with ws.training(NAME) as run:
        assert run.restore_latest(**Toy().objects()) is None
        with pytest.raises(CheckpointIncompleteError):
            run.restore("0123456789abcdef", **Toy().objects())
