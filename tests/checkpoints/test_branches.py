"""Eight trainings branch from one set for a comparison, while its own training goes on.

What needs several ranks or dies by a signal is in tests/support/policy_ranks.py.
"""

import random
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: torch checkpoints not shown")

from eventlog.errors import (  # noqa: E402
    CheckpointError,
    CheckpointIncompleteError,
    ConfigError,
    FencedError,
)
from eventlog.event import SessionForked  # noqa: E402
from eventlog.log import SessionFilter  # noqa: E402
from replay.workspace import Workspace, open_workspace  # noqa: E402
from snapshots.checkpoint_config import CheckpointConfig  # noqa: E402
from snapshots.checkpoint_retention import collect_garbage  # noqa: E402
from snapshots.sample_order import SampleOrder  # noqa: E402
from snapshots.training_run import TrainingRun  # noqa: E402
from tests.support.command import Command  # noqa: E402
from tests.support.scenarios import run_scenarios  # noqa: E402
from tests.support.torch_states import fingerprint  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is")

BRANCHES = 8
CONFIG = CheckpointConfig(keep_last_n=2)


class Trained:
    """A frozen table, a trained head with dropout, and all else that a step depends on."""

    def __init__(self) -> None:
        torch.manual_seed(2)
        self.table = torch.nn.Embedding(2_000, 64).requires_grad_(False)
        self.head = torch.nn.Sequential(torch.nn.Dropout(0.3), torch.nn.Linear(64, 3))
        self.model = torch.nn.Sequential(self.table, self.head)
        self.optimizer = torch.optim.AdamW(self.head.parameters(), lr=1e-2)
        self.scheduler = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.9)
        self.data = SampleOrder(60, batch_size=7, seed=4)
        self.seen: list[Any] = []

    def objects(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "optimizer": self.optimizer,
            "scheduler": self.scheduler,
            "data": self.data,
        }

    def train(self, steps: int) -> str:
        """So many steps; all that they depended on and led to."""
        for _ in range(steps):
            batch = self.data.next_batch()
            noise = random.random()
            self.optimizer.zero_grad()
            loss = (self.model(torch.tensor(batch)) * noise).square().mean()
            loss.backward()
            self.optimizer.step()
            self.scheduler.step()
            self.seen.append((batch, noise, loss.item()))
        states = [self.model.state_dict(), self.optimizer.state_dict(), self.scheduler.state_dict()]
        return repr((self.seen[-steps:], fingerprint(states)))


def begin(ws: Workspace, run: TrainingRun) -> tuple[Trained, str, Any]:
    """A training with three sessions, one of them inside a call, saved at step 3."""
    trained = Trained()
    random.seed(5)
    torch.manual_seed(6)
    sessions = []
    for name in ("a", "b", "c"):
        desk = {"orders": 0}
        fields = {"environment": "desk", "training": run.name, "training_step": 1}
        session = ws.record(name, state=lambda desk=desk: desk, **fields)
        with session.call("sell", {"to": name}):
            desk["orders"] += 1
        session.record_tool_call("wait", {})
        session.flush()
        sessions.append((session, desk))
    trained.train(3)
    ref = run.checkpoint(3, **trained.objects(), progress={"best": 0.5}).wait()
    return trained, ref.id, sessions


def stored(ws: Workspace) -> int:
    objects = ws.folder / "checkpoints" / "objects"
    return sum(path.stat().st_size for path in objects.rglob("*") if path.is_file())


def test_eight_branches_go_on_as_the_training_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_workspace(tmp_path / "ws") as ws:
        with ws.training("run-1", config=CONFIG) as run:
            trained, set_id, sessions = begin(ws, run)
            lines = {name: len(list(ws.events(name))) for name in "abc"}
            whole = stored(ws)
            told = [branch_once(ws, set_id, number) for number in range(BRANCHES)]
            now = {name: len(list(ws.events(name))) for name in "abc"}
            assert now == lines, "run-1's sessions were touched"
            for session, desk in sessions:
                with session.call("sell", {"to": "it goes on"}):
                    desk["orders"] += 1
                session.flush()
            run.checkpoint(4, model=trained.model).wait()
        check_branches(ws, [one[1] for one in told])
        # The table is stored once: a branch adds its head and moments, far below the whole.
        grown = max(one[2] for one in told)
        print(f"the set takes {whole} bytes, a branch's own set {grown} more")
        assert grown < whole / 20
        check_command(Command(tmp_path / "ws", capsys), told[0][1]["a"])
        # From its set too, as the random state of this process is a branch's by now.
        own_end = continued(ws, set_id)
        ends = [one[0] for one in told]
        assert ends[:-1] == [own_end] * (BRANCHES - 1)
        assert ends[-1] != own_end
        # run-1 went back behind what its sessions did since: their branches stand as they are.
        assert [report for report in ws.check() if report.verdict != "ok"] == []


def test_a_branch_draws_otherwise_where_it_is_reseeded(tmp_path: Path) -> None:
    """`reseed=` was ignored with as many ranks: both arms of a comparison drew the same."""
    with open_workspace(tmp_path) as ws:
        with ws.training("run-1") as run:
            trained = Trained()
            set_id = run.checkpoint(3, **trained.objects()).wait().id
            drawn = (trained.data.next_batch(), random.random())
        arms = []
        for number, seed in enumerate((None, 1, 2, 1)):
            with ws.training(f"arm/{number}") as branch:
                other = Trained()
                branch.branch_from("run-1", set_id, **other.objects(), reseed=seed)
                arms.append((other.data.next_batch(), random.random()))
        assert arms[0] == drawn
        assert [batch for batch, _noise in arms] == [drawn[0]] * 4, "the data goes on"
        assert len({noise for _batch, noise in arms}) == 3
        assert arms[1] == arms[3]
        with ws.training("run-1") as run:
            run.restore(set_id, **trained.objects(), reseed=1)
            assert (trained.data.next_batch(), random.random()) == drawn
            with pytest.raises(ConfigError, match="reseed is 'x'"):
                run.restore(set_id, **trained.objects(), reseed="x")  # type: ignore[typeddict-item]


def branch_once(ws: Workspace, set_id: str, number: int) -> tuple[str, dict[str, str], int]:
    """Branch, train and save: what it came to, its sessions, and the bytes that its set added."""
    other = Trained()
    with ws.training(f"trial/{number}", config=CONFIG) as branch:
        restored = branch.branch_from("run-1", set_id, **other.objects())
        assert (restored.step, restored.progress) == (3, {"best": 0.5})
        assert restored.later_sessions == ()
        if number == BRANCHES - 1:
            other.optimizer.param_groups[0]["lr"] = 0.5
        end = other.train(4)
        before = stored(ws)
        own = branch.checkpoint(7, **other.objects()).wait()
        entry = branch.checkpoints.read_manifest(own).set
        assert entry is not None
        assert sorted(entry.sessions) == sorted(restored.sessions.values())
        return end, dict(restored.sessions), stored(ws) - before


def continued(ws: Workspace, set_id: str) -> str:
    """What run-1 comes to after its set."""
    with ws.training("run-1", config=CONFIG) as run:
        trained = Trained()
        assert run.restore(set_id, **trained.objects()).set_id == set_id
        return trained.train(4)


def check_branches(ws: Workspace, branches: list[dict[str, str]]) -> None:
    """Each begins where the set has its parent, and is its training's own."""
    names = [name for one in branches for name in one.values()]
    assert len(set(names)) == 3 * BRANCHES
    for number, one in enumerate(branches):
        assert sorted(one) == ["a", "b", "c"]
        found = ws.sessions(SessionFilter(training_session=f"trial/{number}", environment="desk"))
        assert sorted(info.session_id for info in found) == sorted(one.values())
        for parent, branch in one.items():
            assert ws.replay(branch).state == {"orders": 1}
            forks = [each for each in ws.events(branch) if isinstance(each.body, SessionForked)]
            assert [each.body.parent_session for each in forks] == [parent]
            with ws.resume(branch, state=lambda: {"orders": 1}) as session:
                assert [call.tool for call in session.open_calls] == ["wait"]
                session.interrupt_open_calls()
                with session.call("sell", {"to": branch}):
                    pass
    assert [report for report in ws.check() if report.verdict != "ok"] == []


def check_command(steplog: Command, branch: str) -> None:
    """What a branch did is set beside what its parent did."""
    ran = steplog("--json", "diff", "a", branch)
    assert ran.code == 1
    assert ran.row["first_step"] == 4
    same = steplog("--json", "diff", "a@3", f"{branch}@3")
    assert (same.code, same.row["equal"]) == (0, True)
    rows = steplog.rows("checkpoint", "list")
    assert len([row for row in rows if row["step"] == 7]) == BRANCHES


def test_a_set_that_was_branched_from_stays_while_any_branch_pins_it(tmp_path: Path) -> None:
    with open_workspace(tmp_path / "ws") as ws, ws.training("run-1", config=CONFIG) as run:
        trained, set_id, _sessions = begin(ws, run)
        for name in ("trial/1", "trial/2", "x" * 60):
            with ws.training(name) as branch:
                branch.branch_from("run-1", set_id, **Trained().objects())
        assert len(run.checkpoints.pins()) == 3

        def save(steps: range) -> list[str]:
            for step in steps:
                trained.train(1)
                run.checkpoint(step, **trained.objects()).wait()
            return [ref.id for ref in run.checkpoints.list_checkpoints()]

        assert set_id in save(range(4, 8))
        first, second, third = sorted(run.checkpoints.pins())
        run.checkpoints.unpin(first)
        run.checkpoints.unpin(second)
        assert set_id in save(range(8, 10))
        with ws.training("late") as late:
            other = Trained()
            assert late.branch_from("run-1", set_id, **other.objects()).step == 3
        run.checkpoints.unpin(third)
        run.checkpoints.unpin("branch-late")
        assert set_id not in save(range(10, 12))
        with pytest.raises(CheckpointIncompleteError), ws.training("later") as branch:
            branch.branch_from("run-1", set_id, **Trained().objects())


def test_a_branchs_own_set_needs_nothing_of_the_training_it_came_from(tmp_path: Path) -> None:
    with open_workspace(tmp_path / "ws") as ws, ws.training("run-1", config=CONFIG) as run:
        trained, set_id, _sessions = begin(ws, run)
        other = Trained()
        with ws.training("trial", config=CONFIG) as branch:
            branch.branch_from("run-1", set_id, **other.objects())
            other.train(1)
            branch.checkpoint(4, **other.objects()).wait()
            expected = other.train(3)
        for name in run.checkpoints.pins():
            run.checkpoints.unpin(name)
        for step in range(4, 8):
            trained.train(1)
            with torch.no_grad():
                trained.table.weight.add_(1)  # what the two had in common is run-1's no more
            run.checkpoint(step, **trained.objects()).wait()
        collect_garbage(run.checkpoints)
        other = Trained()
        with ws.training("trial", config=CONFIG) as branch:
            restored = branch.restore_latest(**other.objects())
            assert restored is not None
            assert other.train(3) == expected


def test_what_cannot_be_branched_from_is_said_and_nothing_is_forked(tmp_path: Path) -> None:
    with open_workspace(tmp_path / "ws") as ws, ws.training("run-1", config=CONFIG) as run:
        _trained, set_id, _sessions = begin(ws, run)
        branch = ws.training("trial").__enter__()  # its block would end with being fenced
        for training, id_ in (("run-2", set_id), ("run-1", "0" * 16)):
            with pytest.raises(CheckpointError):
                branch.branch_from(training, id_, **Trained().objects())
        with pytest.raises(ConfigError, match="from itself"):
            run.branch_from("run-1", set_id, **Trained().objects())
        with pytest.raises(CheckpointError, match="not of this model"):
            branch.branch_from("run-1", set_id, model=torch.nn.Linear(2, 2))
        with ws.training("trial"), pytest.raises(FencedError):
            branch.branch_from("run-1", set_id, **Trained().objects())
        assert not [info for info in ws.sessions() if info.parent_session is not None]


def test_two_ranks_branch_bit_for_bit(tmp_path: Path) -> None:
    run_scenarios("policy_ranks", "branches", tmp_path)


def test_killed_between_forks_it_branches_again_and_lists_what_was_left(tmp_path: Path) -> None:
    run_scenarios("policy_ranks", "branch_killed", tmp_path)
