"""What the command says to type can be typed where it was started."""

import subprocess
import sys
from pathlib import Path

import pytest

from replay.cli.called_as import command_name
from tests.support.sources import ROOT


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with an environment `env` in it, whose programs the shell does not find."""
    (tmp_path / "env" / "bin").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "env" / "bin" / "python"))
    monkeypatch.setattr(sys, "argv", [str(ROOT / "replay" / "cli" / "__main__.py")])
    return tmp_path


def make_program(file: Path) -> None:
    """A file that the shell would run."""
    file.write_text("#!/bin/sh\n")
    file.chmod(0o755)


def test_a_module_from_a_checkout(folder: Path) -> None:
    assert command_name() == "env/bin/python -m replay.cli"


def test_a_module_with_the_command_beside_its_python(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_program(folder / "env" / "bin" / "steplog")
    assert command_name() == "env/bin/steplog"
    monkeypatch.setenv("PATH", str(folder / "env" / "bin"))
    assert command_name() == "steplog"


def test_a_command_by_its_path(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = folder / "env" / "bin" / "steplog"
    make_program(program)
    monkeypatch.setattr(sys, "argv", [str(program)])
    assert command_name() == "env/bin/steplog"
    monkeypatch.chdir("/")
    assert command_name() == str(program).lstrip("/")
    (folder / "a b").mkdir()
    monkeypatch.chdir(folder / "a b")
    assert command_name() == str(program)


def test_within_another_program(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/somewhere/notebook"])
    assert command_name() == "steplog"


def test_the_demos_last_lines_can_be_typed(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "replay.cli", "demo", "--keep", str(tmp_path / "a desk")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    lines = done.stdout.split("What to try next:\n")[1].splitlines()
    assert len(lines) >= 7
    for line in (lines[0], lines[1], lines[4]):
        again = subprocess.run(
            line, cwd=ROOT, shell=True, capture_output=True, text=True, check=False
        )
        assert (again.returncode, again.stderr.count("error:")) == (0, 0), line
        assert again.stdout
