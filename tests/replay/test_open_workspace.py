"""Opening a workspace: made when asked for, never by accident, and never over lost data."""

from pathlib import Path

import pytest

from eventlog.errors import ConfigError, EventCorruptError, LogUnavailableError, SteplogError
from replay.workspace import open_workspace


def record_one(folder: Path) -> None:
    """A workspace at `folder` with one session."""
    with open_workspace(folder) as ws, ws.record("s", environment="desk", state={"n": 1}):
        pass


def test_reading_makes_nothing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no workspace") as raised:
        open_workspace(tmp_path / "typo", create=False)
    assert "--workspace" in raised.value.hint
    assert "STEPLOG_WORKSPACE" in raised.value.hint
    assert not (tmp_path / "typo").exists()


def test_a_missing_folder_is_made_with_all_above_it(tmp_path: Path) -> None:
    record_one(tmp_path / "a" / "b")
    with open_workspace(f"file://{tmp_path}/a/b", create=False) as ws:
        assert [info.session for info in ws.sessions()] == ["s"]


@pytest.mark.parametrize("create", [True, False])
def test_a_lost_log_is_damage_and_never_an_empty_workspace(tmp_path: Path, create: bool) -> None:
    record_one(tmp_path)
    (tmp_path / "log.db").unlink()
    with pytest.raises(EventCorruptError, match=r"lost its log\.db"):
        open_workspace(tmp_path, create=create)
    assert not (tmp_path / "log.db").exists()


def test_a_making_that_was_cut_short_is_done_again(tmp_path: Path) -> None:
    record_one(tmp_path)
    (tmp_path / "steplog.toml").unlink()  # The settings are what is written last.
    with open_workspace(tmp_path) as ws:
        assert ws.session("s").status == "closed"


def test_a_file_of_a_workspace_is_answered_with_its_folder(tmp_path: Path) -> None:
    record_one(tmp_path)
    with pytest.raises(ConfigError, match="is not a folder") as raised:
        open_workspace(tmp_path / "log.db")
    assert raised.value.hint == f"give the folder of the workspace, not a file in it: {tmp_path}"


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SteplogError, match="file") as raised:
        open_workspace(tmp_path / "file" / "ws")
    assert isinstance(raised.value, LogUnavailableError | ConfigError)
