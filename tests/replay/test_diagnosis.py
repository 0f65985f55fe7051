"""`doctor` on installations and folders that are not well."""

import sqlite3
from pathlib import Path

import pytest

from eventlog.sqlite import network_mount
from replay import diagnosis
from replay.diagnosis import Diagnosis, diagnose


def verdicts(found: list[Diagnosis]) -> dict[str, str]:
    """The last verdict of each check."""
    return {one.check: one.verdict for one in found}


def test_a_sound_installation(tmp_path: Path) -> None:
    found = list(diagnose(str(tmp_path / "none yet"), [tmp_path]))
    assert {one.verdict for one in found} == {"ok"}, found
    assert {"python", "sqlite", "steplog", "fastavro", "write", "workspace"} <= {*verdicts(found)}
    assert list(tmp_path.iterdir()) == [], "looking leaves nothing behind"


@pytest.mark.parametrize("name", ["replay.py", "eventlog/__init__.py", "snapshots.py"])
def test_a_file_that_hides_ours_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).touch()
    found = list(diagnose(str(tmp_path), [tmp_path, tmp_path, "."]))
    hits = [one for one in found if str(tmp_path / name) in one.found]
    assert [one.verdict for one in hits] == ["warning"]
    assert "rename it" in hits[0].hint


def test_another_distribution_that_owns_our_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owners = {"replay": ["steplog", "gym-replay"], "eventlog": ["steplog"]}
    monkeypatch.setattr(diagnosis, "packages_distributions", lambda: owners)
    (one,) = [one for one in diagnose(str(tmp_path), []) if one.check == "replay"]
    assert one.verdict == "failed"
    assert "gym-replay" in one.found


def test_a_missing_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosis, "REQUIRED", ("steplog-no-such-library",))
    (one,) = [one for one in diagnose(str(tmp_path), []) if "no-such" in one.check]
    assert (one.verdict, one.hint) == ("failed", "pip install steplog-no-such-library")


def test_an_unsupported_python_and_sqlite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosis, "PYTHON_VERSIONS", ((3, 0), (3, 1)))
    monkeypatch.setattr(sqlite3, "threadsafety", 1)
    found = verdicts(list(diagnose(str(tmp_path), [])))
    assert (found["python"], found["sqlite"]) == ("failed", "warning")


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    # A file where a folder should be: root too is refused there.
    (tmp_path / "file").touch()
    found = list(diagnose(str(tmp_path / "file" / "workspace"), []))
    (one,) = [one for one in found if one.check == "write"]
    assert one.verdict == "failed"
    assert one.hint


def test_a_full_disk_is_foreseen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosis, "FREE_BYTES_MIN", 1 << 62)
    assert verdicts(list(diagnose(str(tmp_path / "new"), [])))["space"] == "warning"


def test_a_network_file_system_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"server:/share {tmp_path}/share nfs4 rw 0 0\n", encoding="utf-8")
    monkeypatch.setattr(network_mount, "_MOUNTS", mounts)
    for place, verdict in [("share/runs", "failed"), ("runs", "ok")]:
        found = list(diagnose(str(tmp_path / place), []))
        (one,) = [one for one in found if one.check == "file system"]
        assert one.verdict == verdict


@pytest.mark.parametrize("place", ["ftp://host/folder", "kafka://broker/topic"])
def test_an_unknown_url(place: str) -> None:
    (one,) = [one for one in diagnose(place, []) if one.check == "workspace"]
    assert one.verdict == "failed"
    assert one.hint


def test_a_damaged_workspace(tmp_path: Path) -> None:
    (tmp_path / "steplog.toml").write_text("format = ", encoding="utf-8")
    (one,) = [one for one in diagnose(str(tmp_path), []) if one.check == "workspace"]
    assert one.verdict == "failed"
    assert "steplog.toml" in one.found
