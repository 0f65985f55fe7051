"""`steplog demo`: the whole story, with nothing left behind unless it is to be kept."""

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.support.command import Command
from tests.support.sources import ROOT


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary folders are made."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    return tmp_path / "tmp"


def test_the_story_and_nothing_left_behind(steplog: Command, places: Path) -> None:
    ran = steplog("demo")
    assert (ran.code, ran.err) == (0, "")
    for told in (
        "killed after step",
        "every acknowledged event is there",
        "its last state is the same as that of a run never stopped",
        "cash",
        "parts from desk/seed-7 at step 13",
        "desk/seed-7: damaged, first at step",
        "What to try next:",
        "steplog demo --keep desk",
    ):
        assert told in ran.out
    assert list(places.iterdir()) == []
    assert str(places) not in ran.out, "what to try next must not name a folder that is gone"
    assert not steplog.workspace.exists()


def test_what_is_kept_can_be_tried(steplog: Command, places: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    ran = steplog("demo", "--keep", kept)
    assert ran.code == 0
    assert list(places.iterdir()) == []
    tries = [line.split() for line in ran.out.split("What to try next:")[1].splitlines() if line]
    assert len(tries) >= 6
    for _steplog, _workspace, folder, *arguments in tries:
        assert folder == str(kept)
        again = steplog.at(Path(folder))(*arguments)
        assert again.code == (1 if arguments[0] == "diff" else 0), again.err
        assert again.out
    assert steplog.at(kept)("check").code == 0


def test_a_folder_in_use_is_refused(desk: Command) -> None:
    ran = desk("demo", "--keep", desk.workspace)
    assert (ran.code, ran.out) == (2, "")
    assert "not empty" in ran.err
    assert desk.row("check")["verdict"] == "ok"


def test_json(steplog: Command, places: Path) -> None:
    ran = steplog("demo", "--json")
    assert ran.code == 0
    assert list(ran.row) == ["workspace", "sessions", "resumed", "branch", "found"]
    assert (ran.row["workspace"], ran.row["found"]) == (None, "damaged")
    assert {ran.row["resumed"], ran.row["branch"]} <= set(ran.row["sessions"])
    assert "killed after step" in ran.err


def test_it_runs_from_any_folder_as_a_process(tmp_path: Path) -> None:
    """The child that is killed must find our packages wherever the demo was started."""
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
    code += "from replay.cli.main import run_command; raise SystemExit(run_command(['demo']))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert list(tmp_path.iterdir()) == []
