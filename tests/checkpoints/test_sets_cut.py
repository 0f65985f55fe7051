"""What lies below a set's cut, and what becomes of a set whose save fails."""

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: checkpoint sets not shown")

from eventlog.errors import CheckpointError  # noqa: E402
from replay.workspace import open_workspace  # noqa: E402
from snapshots.checkpoint_config import CheckpointConfig  # noqa: E402
from snapshots.checkpoints.object_folder import ObjectFolder  # noqa: E402
from snapshots.sets.journal import GIVEN_UP, session_of_set  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is")


def test_a_call_that_was_recorded_a_moment_ago_is_below_the_cut(tmp_path: Path) -> None:
    """It was submitted and not yet durable: the set had its session before the call, and the random
    state after the action was drawn. Restored, the action was lost."""
    with open_workspace(tmp_path) as ws, ws.training("t") as run:
        sessions = [
            ws.record(f"s-{number}", environment="toy", state={"n": 0}, training="t")
            for number in range(8)
        ]
        for step in range(1, 9):
            for session in sessions[:step]:
                session.record_tool_call("look", {"step": step})
            kept = run.checkpoints.read_manifest(run.checkpoint(step, progress=step).wait()).set
            assert kept is not None
            assert {name: one.step for name, one in kept.sessions.items()} == {
                session.session_id: session.step for session in sessions
            }


@pytest.mark.parametrize("async_save", [False, True])
def test_a_set_whose_save_fails_is_ended_and_the_next_one_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, async_save: bool
) -> None:
    config = CheckpointConfig(async_save=async_save)
    state = {"extra": {"w": torch.ones(100_000)}}

    def fail(*_args: object, **_kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    with open_workspace(tmp_path) as ws, ws.training("t", config=config) as run:
        with monkeypatch.context() as broken:
            broken.setattr(ObjectFolder, "write_object", fail)
            with pytest.raises(CheckpointError, match="No space left"):
                run.checkpoint(1, **state).wait()
        (info,) = (one for one in ws.sessions() if one.environment == "steplog.checkpoint")
        assert info.status == "closed"
        *_, closed = ws.events(info.session_id)
        assert getattr(closed.body, "reason", None) == GIVEN_UP
        ref = run.checkpoint(2, **state).wait()
        assert ws.session(session_of_set(ref.id)).status == "closed"
        restored = run.restore_latest()
        assert restored is not None
        assert restored.step == 2
    assert all(report.verdict == "ok" for report in ws_checked(tmp_path))


def ws_checked(folder: Path) -> list:  # type: ignore[type-arg]
    with open_workspace(folder) as ws:
        return list(ws.check())
