"""A manifest that cannot be read stops retention, and no training; there is a way out."""

import logging
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: checkpoint sets not shown")

from eventlog.errors import LogUnavailableError  # noqa: E402
from replay.workspace import Workspace, open_workspace  # noqa: E402
from snapshots.checkpoint_config import CheckpointConfig  # noqa: E402
from snapshots.checkpoints.manifest import CheckpointRef  # noqa: E402
from snapshots.sets import keeping as set_keeping  # noqa: E402
from tests.support.command import Command  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is")

KEEP_TWO = CheckpointConfig(keep_last_n=2)
STATE: dict[str, Any] = {"extra": {"w": torch.ones(3)}}


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    ours = [one for one in caplog.records if one.name == "steplog.checkpoints"]
    return [one for one in ours if "older ones could not be taken away" in one.message]


def damaged_by(ws: Workspace) -> tuple[Path, CheckpointRef]:
    """A set of another training whose manifest has lost its end."""
    with ws.training("other") as run:
        ref = run.checkpoint(1, extra={"other": torch.full((9,), 5.0)}).wait()
        path = run.checkpoints.set_folder(ref) / "manifest.json"
        path.write_bytes(path.read_bytes()[:-9])
    return path.parent, ref


def test_a_training_goes_on_beside_a_manifest_that_cannot_be_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each save of every training of the workspace raised, and nothing named a way out."""
    steplog = Command(tmp_path, capsys)
    with open_workspace(tmp_path) as ws:
        folder, bad = damaged_by(ws)
        with ws.training("run", config=KEEP_TWO) as run:
            kept = [run.checkpoint(step, **STATE).wait() for step in (1, 2, 3)]
            assert run.checkpoints.list_checkpoints() == kept
            (record,) = warnings_in(caplog)
            assert record.levelno == logging.WARNING
            name = f"trainings-other/{folder.name}"
            assert f"while checkpoint {name} cannot be read" in record.message
            assert f"checkpoint set-aside {name} --folder {ws.folder / 'checkpoints'}" in (
                record.message
            )
            ran = steplog("checkpoint", "gc", "--grace", "0s")
            assert (ran.code, f"set-aside {name}" in ran.err) == (4, True)
            ran = steplog("checkpoint", "set-aside", name, "--folder", ws.folder / "checkpoints")
            assert ran.code == 0, ran.err
            kept.append(run.checkpoint(4, **STATE).wait())
            assert run.checkpoints.list_checkpoints() == kept[-2:]
            assert len(warnings_in(caplog)) == 1
        aside = ws.folder / "checkpoints" / "tracks" / "trainings-other" / "aside" / folder.name
        assert aside.is_dir()
        assert not folder.exists()
        # What it alone needs goes now, and no more.
        assert steplog("checkpoint", "gc", "--grace", "0s", "--json").row["objects"] == 1
        assert steplog("checkpoint", "check", kept[-1].id).code == 0
        with ws.training("run") as run:
            restored = run.restore_latest(**STATE)
            assert restored is not None
            assert restored.set_id == kept[-1].id
    assert bad.id in aside.name


@pytest.mark.parametrize("error", [LogUnavailableError("gone", hint="wait"), ValueError("odd")])
def test_whatever_stops_retention_is_no_fault_of_the_save(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
) -> None:
    """Of an error that was not steplog's the save was told to have failed."""

    def fail(*_: Any, **__: Any) -> None:
        raise error

    with open_workspace(tmp_path) as ws, ws.training("run", config=KEEP_TWO) as run:
        run.checkpoint(1, **STATE)
        with monkeypatch.context() as patch:
            patch.setattr(set_keeping, "apply_retention", fail)
            second = run.checkpoint(2, **STATE).wait()
        assert run.checkpoints.head() == second
        (record,) = warnings_in(caplog)
        assert ("odd" if isinstance(error, ValueError) else "gone") in record.message
        assert bool(record.exc_info) == isinstance(error, ValueError)
        run.checkpoint(3, **STATE)
        assert len(warnings_in(caplog)) == 1


def test_nothing_goes_while_a_committed_set_has_lost_its_manifest(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What it needs is not known: objects that it shared with a set that was let go went too."""
    with open_workspace(tmp_path) as ws, ws.training("run", config=KEEP_TWO) as run:
        first = run.checkpoint(1, **STATE).wait()
        path = run.checkpoints.set_folder(first) / "manifest.json"
        path.rename(tmp_path / "away")
        kept = [run.checkpoint(step, **STATE).wait() for step in (2, 3, 4)]
        assert run.checkpoints.list_checkpoints() == kept
        (record,) = warnings_in(caplog)
        assert "and its manifest.json is gone" in record.message
        (tmp_path / "away").rename(path)
        run.checkpoint(5, **STATE)
        assert len(run.checkpoints.list_checkpoints()) == 2
        assert len(warnings_in(caplog)) == 1
