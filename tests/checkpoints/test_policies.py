"""Policy versions of a training: small, exact, named by the calls they made, and gone back to.

What needs several ranks or dies by a signal is in tests/support/policy_ranks.py.
"""

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: torch checkpoints not shown")

from eventlog.errors import ConfigError  # noqa: E402
from replay.workspace import Workspace, open_workspace  # noqa: E402
from snapshots.checkpoint_store import CheckpointStore  # noqa: E402
from snapshots.checkpoints.survey import list_unfinished  # noqa: E402
from snapshots.checkpoints.tracks import track_of_policies  # noqa: E402
from snapshots.policies.notes import read_history, read_rolled_back  # noqa: E402
from tests.support.command import Command  # noqa: E402
from tests.support.scenarios import run_scenarios  # noqa: E402
from tests.support.torch_states import fingerprint  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is")

VERSIONS = 21
WARM_UP = 20
"""Steps that the optimizer has behind it: its first move every weight by the whole rate."""


def at(version: int) -> Any:
    """A model with the weights of this version."""
    torch.manual_seed(version)
    return torch.nn.Linear(40, 3).bfloat16()


def bits(model: Any) -> str:
    return repr(fingerprint(model.state_dict()))


def in_use(ws: Workspace, training: str) -> list[str]:
    return [one.label for one in read_history(ws.log, training) if one.current]


def test_many_versions_take_little_room_and_each_comes_back(tmp_path: Path) -> None:
    """A bf16 policy at a learning rate of 3e-6, its optimizer on fp32 masters, as RL trains it."""
    chance = torch.Generator().manual_seed(1)
    master = torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(3)))
    with torch.no_grad():
        for one in master.parameters():
            one.copy_(torch.randn(one.shape, generator=chance) * 0.02)
    optimizer = torch.optim.AdamW(master.parameters(), lr=3e-6)
    policy = torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(3))).bfloat16()
    seen: dict[str, str] = {}
    with open_workspace(tmp_path / "ws") as ws, ws.training("run-1") as run:
        for version in range(-WARM_UP, VERSIONS):
            for one in master.parameters():
                one.grad = torch.randn(one.shape, generator=chance)
            optimizer.step()
            if version < 0:
                continue
            policy.load_state_dict(master.state_dict())
            label = run.publish_policy(version, policy)
            seen[label] = bits(policy)
        assert len(set(seen.values())) == VERSIONS
        objects = tmp_path / "ws" / "checkpoints" / "objects"
        stored = sum(path.stat().st_size for path in objects.rglob("*") if path.is_file())
        whole = sum(2 * one.numel() for one in policy.parameters())
        ratio = 20 * whole / stored
        print(f"{VERSIONS} versions of {whole} bytes in {stored}: 20 copies are {ratio:.1f} x it")
        assert ratio >= 15
        for label in reversed(seen):
            run.restore_policy(label, policy)
            assert bits(policy) == seen[label]


def test_published_again_after_a_restore(tmp_path: Path) -> None:
    with open_workspace(tmp_path / "ws") as ws:
        line = CheckpointStore(ws.folder / "checkpoints", track_of_policies("run-1"))
        with ws.training("run-1") as run:
            assert (run.policy, run.policy_in_use()) == (None, None)
            for version in range(4):
                run.publish_policy(version, at(version))
                if version == 1:
                    run.checkpoint(1, model=at(1)).wait()
        before = read_history(ws.log, "run-1")
        model = at(9)
        with ws.training("run-1") as run:
            restored = run.restore_latest(model=model)
            assert restored is not None
            assert (run.policy, run.policy_in_use(), restored.policy) == ("1", "1", "1")
            assert line.head() == before[1].ref
            assert [one.standing for one in read_history(ws.log, "run-1")] == [True] * 2 + [
                False
            ] * 2
            assert run.publish_policy(2, at(2)) == "2"
            assert run.publish_policy(3, at(30)) == "3~2"
            assert run.publish_policy(3, at(31)) == "3~3"
            assert run.publish_policy(3, at(30)) == "3~2"
            found = {one.label: one for one in read_history(ws.log, "run-1")}
            assert found["2"].ref == before[2].ref, "the same weights got another checkpoint"
            for label, weights in {"3": 3, "3~2": 30, "3~3": 31, "2": 2}.items():
                assert run.restore_policy(label, model) == label
                assert bits(model) == bits(at(weights))
            assert run.restore_policy(3, model) == "3~3"
            with pytest.raises(ConfigError, match="no policy version '7'"):
                run.restore_policy(7, model)
            assert run.policy == run.policy_in_use() == "3~2"
        assert {report.verdict for report in ws.check()} == {"ok"}


def test_the_same_weights_again_leave_no_unfinished_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`checkpoint check` ended with 6 for a day: a save that was killed, or is under way."""
    with open_workspace(tmp_path / "ws") as ws, ws.training("run-1") as run:
        for _ in range(3):
            assert run.publish_policy(1, at(1)) == "1"
        (version,) = read_history(ws.log, "run-1")
    track = CheckpointStore(tmp_path / "ws" / "checkpoints", track_of_policies("run-1"))
    assert list_unfinished(track) == []
    assert track.list_checkpoints() == [version.ref]
    assert Command(tmp_path / "ws", capsys)("checkpoint", "check").code == 0


def test_two_trainings_of_one_workspace_have_their_own_versions(tmp_path: Path) -> None:
    with (
        open_workspace(tmp_path / "ws") as ws,
        ws.training("run-1") as one,
        ws.training("run-2") as two,
    ):
        for version in range(3):
            assert one.publish_policy(version, at(version)) == str(version)
            assert two.publish_policy(version, at(10 + version)) == str(version)
        assert one.roll_back_policy(0, reason="trial", model=at(0)) == "0"
        assert (one.policy, one.policy_in_use()) == ("0", "0")
        assert (two.policy, two.policy_in_use()) == ("2", "2")
        assert two.publish_policy(3, at(13)) == "3"
        model = at(9)
        for version in range(3):
            one.restore_policy(version, model)
            assert bits(model) == bits(at(version))
            two.restore_policy(version, model)
            assert bits(model) == bits(at(10 + version))
        with pytest.raises(ConfigError, match="no policy version '3'"):
            one.restore_policy(3, model)
        assert read_rolled_back(ws.log, "run-2") == []


def publish_and_record(ws: Workspace, run: Any, step: int, long: str = "desk/long") -> None:
    """A step of a training: a version, a session under it, and one that goes over to it."""
    label = run.publish_policy(step, at(step))
    fields = {"environment": "desk", "training": "run-1", "training_step": step}
    with (
        ws.record(f"desk/{step}", policy=run.policy, **fields) as session,
        session.call("sell", {"step": step}) as call,
    ):
        call.result = "sold"
    open_one = ws.record(long, if_exists="resume", policy=label, **fields)
    open_one.policy = label
    with open_one.call("sell", {"long": step}) as call:
        call.result = "sold"
    open_one.release()


def test_bad_versions_are_found_gone_back_from_and_their_sessions_voided(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "ws"
    steplog = Command(folder, capsys)
    with open_workspace(folder) as ws, ws.training("run-1") as run:
        for step in range(1, 5):
            publish_and_record(ws, run, step)
            run.checkpoint(step, model=at(step)).wait()
        operator_goes_back(steplog)
        # The trainer is not fenced, and its weights are what they were.
        assert (run.policy, run.policy_in_use()) == ("4", "2")
        model = at(4)
        assert run.restore_policy(run.policy_in_use(), model) == "2"
        assert bits(model) == bits(at(2))
        publish_and_record(ws, run, 5, "desk/next")
        assert (run.policy, run.policy_in_use()) == ("5", "5")
        operator_goes_back(steplog, again=True)
    with open_workspace(folder) as ws, ws.training("run-1") as run:
        restored = run.restore_latest(model=model)
        assert restored is not None
        # The set's weights are version 4, and what acts with them must not be called 2.
        assert bits(model) == bits(at(4))
        assert (restored.policy, run.policy, run.policy_in_use()) == ("4", "4", "2")
        assert run.roll_back_policy("2", reason="as the operator said", model=model) == "2"
        assert (bits(model), run.policy) == (bits(at(2)), "2")
        assert len(read_rolled_back(ws.log, "run-1")) == 2, "what is in use is not recorded twice"
        assert in_use(ws, "run-1") == ["2"]
        assert {report.verdict for report in ws.check()} == {"ok"}


def operator_goes_back(steplog: Command, *, again: bool = False) -> None:
    """By the command, in a process that has nothing of the trainer's."""
    rows = steplog.rows("policy", "list")
    labels = ["1", "2", "3", "4", "5"][: len(rows)]
    assert [row["label"] for row in rows] == labels
    assert [row["label"] for row in rows if row["current"]] == labels[-1:]
    assert all(row["kept"] for row in rows)
    row = steplog.row("policy", "rollback", "2", "--reason", "it cheats")
    assert (row["label"], row["moved"]) == ("2", True)
    rows = steplog.rows("policy", "list", "run-1")
    assert [row["label"] for row in rows if row["current"] and row["head"]] == ["2"]
    if again:
        return
    bad = ["sessions", "--policy", "3..4"]
    assert [row["session"] for row in steplog.rows(*bad)] == ["desk/long", "desk/3", "desk/4"]
    calls = {
        row["arguments"].get("long"): row["policy"] for row in steplog.rows("calls", "desk/long")
    }
    assert calls == {1: "1", 2: "2", 3: "3", 4: "4"}
    shown = steplog.rows("show", "desk/long", "--kind", "tool_called")
    assert [row["body"]["policy"] for row in shown] == ["1", "2", "3", "4"]
    voided = steplog.rows(*bad, "--void", "--reason", "it cheats")
    assert {row["session"] for row in voided if row["voided"]} == {"desk/long", "desk/3", "desk/4"}
    assert steplog("--json", *bad, "--void", "--reason", "it cheats").rows == []
    kept = [
        row["session"]
        for row in steplog.rows("sessions", "--environment", "desk")
        if row["voided"] is None
    ]
    assert kept == ["desk/1", "desk/2"]


def test_versions_go_to_other_ranks_bit_for_bit(tmp_path: Path) -> None:
    """Published by 2 ranks under FSDP2 and DDP; loaded and published again by 1 and by 2."""
    run_scenarios("policy_ranks", "other_worlds", tmp_path)


def test_killed_at_any_promise_log_and_head_agree_and_no_version_is_lost(tmp_path: Path) -> None:
    run_scenarios("policy_ranks", "killed", tmp_path)


def test_a_fenced_trainer_publishes_nothing(tmp_path: Path) -> None:
    run_scenarios("policy_ranks", "fenced", tmp_path)
