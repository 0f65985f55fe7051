"""Policy versions and branches by real processes: `-m tests.support.policy_ranks NAME FOLDER`.

Ranks with gloo, trainers that take over, and SIGKILL at a point where no luck is needed to hit it.
Each process is forked from a parent that has loaded torch and opened no workspace. Only for tests
that have torch.
"""

import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # FSDP loads it; once here, not once in each rank
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from eventlog.errors import FencedError
from eventlog.event import SessionForked
from replay.workspace import Workspace, open_workspace
from snapshots.checkpoint_config import CheckpointConfig
from snapshots.checkpoint_store import CheckpointStore
from snapshots.checkpoints.object_folder import ObjectFolder
from snapshots.checkpoints.tracks import track_of_policies
from snapshots.policies import rollback as policy_rollback
from snapshots.policies.history import PolicyVersion
from snapshots.policies.notes import PolicyNotes, read_history, read_rolled_back
from snapshots.sets import restoring as set_restoring
from snapshots.shards import policy_keeper as shard_policies
from snapshots.training_run import TrainingRun
from tests.support.own_sessions import training_session
from tests.support.scale import scaled
from tests.support.torch_ranks import learn, run_world, start_world
from tests.support.torch_states import fingerprint

DEADLINE_S = 90
"""A process that hangs ends itself, with SIGALRM."""
TRAINING = "run/1"
LAST = 3


def net() -> torch.nn.Module:
    """A small bf16 model of odd sizes, with a buffer and chance; the same in every process."""
    torch.manual_seed(3)
    layers = torch.nn.Linear(31, 17), torch.nn.Dropout(0.2), torch.nn.Linear(17, 5)
    model = torch.nn.Sequential(*layers).bfloat16()
    model.register_buffer("count", torch.arange(5))
    return model


def at_version(model: torch.nn.Module, version: int) -> torch.nn.Module:
    """Let the model's weights be those of the version; sharded ones too."""
    chance = torch.Generator().manual_seed(100 + version)
    with torch.no_grad():
        for one in model.parameters():
            value = torch.randn(one.shape, generator=chance).to(one.dtype)
            if isinstance(one, DTensor):
                one.copy_(_like(one, value))
            else:
                one.copy_(value)
    return model


def _like(one: DTensor, value: torch.Tensor) -> DTensor:
    return distribute_tensor(value, one.device_mesh, one.placements)


def whole(model: torch.nn.Module) -> str:
    """Every bit of the model, as all ranks have it together."""
    state = {
        name.removeprefix("module."): one.full_tensor() if isinstance(one, DTensor) else one
        for name, one in model.state_dict().items()
    }
    return repr(fingerprint(state))


def expected(version: int) -> str:
    """What `whole` gives for the version."""
    return whole(at_version(net(), version))


def sharded() -> torch.nn.Module:
    """The model under FSDP2."""
    model = net()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    fully_shard(model, mesh=mesh)
    return model


def replicated() -> torch.nn.Module:
    """The model under DDP."""
    return DistributedDataParallel(net())


KINDS: Mapping[str, Callable[[], torch.nn.Module]] = {
    "fsdp": sharded,
    "ddp": replicated,
    "plain": net,
}


def emptied(model: torch.nn.Module) -> torch.nn.Module:
    """Weights that no version has."""
    with torch.no_grad():
        for one in model.parameters():
            one.fill_(7)
    return model


def run_of(ws: Workspace, name: str = TRAINING, *, fresh: bool = False) -> TrainingRun:
    """The training, with a deadline for silent ranks."""
    return ws.training(name, config=CheckpointConfig(timeout_s=30, keep_last_n=2), fresh=fresh)


def other_worlds(folder: Path) -> None:
    """Published by 2 ranks under FSDP2 and DDP; restored, and published again, by 1, 2 and 3."""

    def publish(kind: str, rank: int) -> None:
        signal.alarm(DEADLINE_S)
        with open_workspace(folder / "ws") as ws, run_of(ws, kind) as run:
            model = KINDS[kind]()
            for version in range(LAST + 1):
                assert run.publish_policy(version, at_version(model, version)) == str(version)
                assert run.policy == run.policy_in_use() == str(version)

    def restore(kind: str, into: str, rank: int) -> None:
        signal.alarm(DEADLINE_S)
        with open_workspace(folder / "ws") as ws, run_of(ws, kind) as run:
            model = KINDS[into]()
            for version in range(LAST + 1):
                assert run.restore_policy(str(version), emptied(model)) == str(version)
                assert whole(model) == expected(version), f"{kind} as {into}: {version}"
                # As a training does that goes on: the same weights are the same version.
                assert run.publish_policy(version, model) == str(version)
            again = run.publish_policy(LAST, at_version(model, 50 + run.attempt))
            assert again == f"{LAST}~{run.attempt}"
            assert run.restore_policy(again, emptied(model)) == again
            assert whole(model) == expected(50 + run.attempt)
            # For what follows, the number is again what it was.
            assert run.roll_back_policy(str(LAST - 1), reason="trial", model=model) == str(LAST - 1)

    for kind in ("fsdp", "ddp"):
        run_world(2, folder, partial(publish, kind))
    worlds = [(1, "plain"), (2, "fsdp"), (2, "ddp"), (3, "fsdp")]
    for kind in ("fsdp", "ddp"):
        for world, into in worlds[: scaled(3, 4)]:
            run_world(world, folder, partial(restore, kind, into))


def fenced(folder: Path) -> None:
    """A trainer that another took the training from publishes nothing, on any of its ranks."""

    def rank_of(rank: int) -> None:
        signal.alarm(DEADLINE_S)
        with open_workspace(folder / "ws") as ws:
            run = run_of(ws)
            refused = 0
            try:
                with run:
                    model = at_version(net(), 0)
                    run.publish_policy(0, model)
                    if rank == 0:
                        with open_workspace(folder / "ws") as other:
                            training_session(other, TRAINING).release()
                    dist.barrier()
                    try:
                        run.publish_policy(1, at_version(model, 1))
                    except FencedError:
                        refused = 1
            except FencedError:  # the training's block ends with what is known
                pass
            assert refused == 1
            if rank == 0:
                assert [one.label for one in PolicyNotes(ws.log, TRAINING).published()] == ["0"]
                head = policy_line(folder).head()
                assert head == read_history(ws.log, TRAINING)[0].ref

    run_world(2, folder, rank_of)


def policy_line(folder: Path) -> CheckpointStore:
    """The line of the training's versions."""
    return CheckpointStore(folder / "ws" / "checkpoints", track_of_policies(TRAINING))


def die(*_: object, **__: object) -> None:
    """SIGKILL to this process."""
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


def arm(point: str) -> None:
    """Let this process die when it comes to the point."""
    if point == "objects":
        ObjectFolder.keep_objects = die  # type: ignore[method-assign, assignment]
    elif point == "manifest":
        CheckpointStore.keep_manifest = die  # type: ignore[method-assign, assignment]
    elif point == "in_manifest":
        CheckpointStore.verify_in_place = die  # type: ignore[method-assign, assignment]
    elif point == "note":
        shard_policies.record_publication = die  # type: ignore[assignment]
    elif point == "head":
        CheckpointStore.move_head = die  # type: ignore[method-assign, assignment]
    elif point == "back_note":
        policy_rollback.record_rollback = die  # type: ignore[assignment]
    else:
        raise ValueError(point)


NOTED = ("head",)
"""Points of a publication after which the log has it."""

POINTS = ["objects", "manifest", "in_manifest", "note", "head"]
BACK_POINTS = ["back_note", "head"]
HEALERS = ["publish", "restore", "back"]


def killed(folder: Path) -> None:
    """Killed in a publication or in going back; whoever comes next makes log and HEAD agree."""
    rounds = [(point, "publish") for point in POINTS] + [(one, "back") for one in BACK_POINTS]
    runs_each = scaled(1, 4)
    run_world(1, folder, partial(_first, folder))
    for number, (point, what) in enumerate(rounds * runs_each):
        for healer in HEALERS:
            first, *rest = start_world(
                1 + number % 2, folder, partial(_killed, folder, point, what)
            )
            died_at(point, first)
            for pid in rest:
                kill(pid)
            run_world(1, folder, partial(_healed, folder, point, what, healer))


def died_at(point: str, pid: int) -> None:
    """Wait for the process, which must have killed itself."""
    _, code = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(code), f"{point} was not reached: {code}"
    assert os.WTERMSIG(code) == signal.SIGKILL, f"{point}: {code}"


def kill(pid: int) -> None:
    """SIGKILL, and wait."""
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def _first(folder: Path, _rank: int) -> None:
    signal.alarm(DEADLINE_S)
    with open_workspace(folder / "ws") as ws, run_of(ws) as run:
        model = at_version(net(), 0)
        run.publish_policy(0, model)
        run.publish_policy(1, at_version(model, 1))
        run.checkpoint(1, model=model)


def _newest(ws: Workspace) -> int:
    return max(one.version for one in read_history(ws.log, TRAINING))


def _killed(folder: Path, point: str, what: str, _rank: int) -> None:
    signal.alarm(DEADLINE_S)
    with open_workspace(folder / "ws") as ws, run_of(ws, fresh=True) as run:
        version = _newest(ws) + 1
        if what == "publish":
            arm(point)
            run.publish_policy(version, at_version(net(), version))
        else:
            run.publish_policy(version, at_version(net(), version))
            arm(point)
            run.roll_back_policy(1, reason="it cheats")


def _healed(folder: Path, point: str, what: str, healer: str, _rank: int) -> None:
    signal.alarm(DEADLINE_S)
    with open_workspace(folder / "ws") as ws, run_of(ws, fresh=True) as run:
        model = net()
        before = {one.label: one for one in read_history(ws.log, TRAINING)}
        newest = _newest(ws)
        (current,) = (one for one in before.values() if one.current)
        if what == "back":
            went = point == "head"
            assert current.label == ("1" if went else str(newest)), (point, current)
        if healer == "publish":
            # That the version was published before it was killed is not known to a trainer.
            again = newest if what == "publish" and point in NOTED else newest + 1
            assert run.publish_policy(again, at_version(model, again)) == str(again)
            current_now = str(again)
        elif healer == "restore":
            restored = run.restore_latest(model=model)
            assert restored is not None
            assert run.policy == restored.policy == "1"
            assert whole(model) == expected(1)
            # What was published after the set is given up; who went back is still obeyed.
            backs = read_rolled_back(ws.log, TRAINING)
            labels = {one.ref: one.label for one in before.values()}
            current_now = labels[backs[-1].ref] if backs else "1"
        else:
            assert run.roll_back_policy(0, reason="it cheats too", model=model) == "0"
            assert whole(model) == expected(0)
            current_now = run.policy or ""
        assert run.policy_in_use() == current_now
        _agree(ws, run, folder, current_now)


def _agree(ws: Workspace, run: TrainingRun, folder: Path, current: str) -> None:
    """Log and HEAD say the same, and every version that the log names is there, bit for bit."""
    store = policy_line(folder)
    history: list[PolicyVersion] = read_history(ws.log, TRAINING)
    assert [one.label for one in history if one.current] == [current]
    assert store.head() == next(one.ref for one in history if one.current)
    model = net()
    for one in history:
        assert "~" not in one.label, "the same weights were taken for others"
        store.verify_in_place(store.read_manifest(one.ref))
        assert run.restore_policy(one.label, emptied(model)) == one.label
        assert whole(model) == expected(one.version), one.label
    assert {report.verdict for report in ws.check()} == {"ok"}


def branches(folder: Path) -> None:
    """Two ranks branch from a set of two: as its own training goes on, so do they, bit for bit."""

    def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> str:
        for _ in range(3):
            optimizer.zero_grad()
            learn(model, torch.randn(6, 31).bfloat16())
            optimizer.step()
        return whole(model)

    def rank_of(rank: int) -> None:
        signal.alarm(DEADLINE_S)
        torch.manual_seed(40 + rank)
        with open_workspace(folder / "ws") as ws:
            model = sharded()
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
            torch.manual_seed(40 + rank)
            with run_of(ws) as run:
                if rank == 0:
                    session = ws.record("env", environment="toy", training=TRAINING)
                    session.record_tool_call("wait", {})
                    session.flush()
                train(model, optimizer)
                ref = run.checkpoint(3, model=model, optimizer=optimizer).wait()
                own = train(model, optimizer)
            for name in ("a", "b"):
                other = sharded()
                their = torch.optim.AdamW(other.parameters(), lr=1e-2)
                with run_of(ws, name) as run:
                    into = {"model": other, "optimizer": their}
                    restored = run.branch_from(TRAINING, ref.id, **into)
                    assert train(other, their) == own
                assert list(restored.sessions) == ["env"]
                if rank == 0:
                    branch = ws.resume(restored.sessions["env"])
                    assert [one.step for one in branch.open_calls] == [1]
            if rank == 0:
                session.record_tool_call("more", {})  # its writer was never fenced
                session.flush()
                kinds = [one.kind for one in ws.events("env")]
                assert kinds == ["session_seeded", "tool_called", "tool_called"]
                forks = [one for one in ws.sessions() if one.parent_session == "env"]
                assert len(forks) == 2, "rank 0 alone forks"

    run_world(2, folder, rank_of)


def branch_killed(folder: Path) -> None:
    """Killed after the first fork of three, and after all before the first set: branch again."""

    def begin(_rank: int) -> None:
        signal.alarm(DEADLINE_S)
        with open_workspace(folder / "ws") as ws, run_of(ws) as run:
            for name in ("x", "y", "z"):
                session = ws.record(name, environment="toy", training=TRAINING)
                session.record_tool_call("wait", {})
                session.flush()
            ref = run.checkpoint(1, model=at_version(net(), 1)).wait()
            (folder / "set").write_text(ref.id)

    def branch(after: int | None, _rank: int) -> None:
        signal.alarm(DEADLINE_S)
        with open_workspace(folder / "ws") as ws, run_of(ws, "trial") as run:
            model = net()
            assert run.restore_latest(model=model) is None, "it has no set of its own"
            if after is not None:
                fork, made = set_restoring._fork, []

                def fork_some(*arguments: Any) -> str:
                    if len(made) == after:
                        die()
                    made.append(fork(*arguments))
                    return made[-1]

                set_restoring._fork = fork_some
            restored = run.branch_from(TRAINING, set_id, model=model)
            if after is not None:
                die()
            assert whole(model) == expected(1)
            _compare_branches(ws, restored.sessions, restored.later_sessions, 1 + 3)
            ref = run.checkpoint(2, model=model).wait()
            entry = run.checkpoints.read_manifest(ref).set
            assert entry is not None
            assert set(restored.sessions.values()) <= set(entry.sessions)
            again = run.restore_latest(model=model)
            assert again is not None
            assert again.set_id == ref.id

    run_world(1, folder, begin)
    set_id = (folder / "set").read_text()
    for after in (1, 3):
        (pid,) = start_world(1, folder, partial(branch, after))
        died_at(f"fork {after}", pid)
    run_world(1, folder, partial(branch, None))


def _compare_branches(
    ws: Workspace, sessions: Mapping[str, str], later: tuple[str, ...], earlier: int
) -> None:
    assert sorted(sessions) == ["x", "y", "z"]
    assert len(set(sessions.values())) == 3
    assert len(later) == earlier, later
    assert not set(later) & set(sessions.values())
    for name, branch in sessions.items():
        fork = next(one.body for one in ws.events(branch) if isinstance(one.body, SessionForked))
        assert fork.parent_session == name


SCENARIOS: dict[str, Callable[[Path], None]] = {
    "branch_killed": branch_killed,
    "branches": branches,
    "fenced": fenced,
    "killed": killed,
    "other_worlds": other_worlds,
}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for scenario in sys.argv[1].split(","):
        SCENARIOS[scenario](Path(sys.argv[2]) / scenario)
    print("done", flush=True)
