"""A user's own replay.py, snapshots.py or eventlog.py: one clear error, naming file and fix.

Such files are common in the folders where people train. Python finds them before ours, and without
the check the failure would come later, inside the stranger's module.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.sources import ROOT

OURS = ("eventlog", "snapshots", "replay")
SENTINEL = "the stranger's module was run"


def run_python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python in `folder`, with the repository on its path as an installation would be."""
    environment = {name: value for name, value in os.environ.items() if name[:6] != "PYTHON"}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("package", OURS)
@pytest.mark.parametrize("is_folder", [False, True], ids=["file", "package"])
def test_a_shadowing_module_is_named(tmp_path: Path, package: str, is_folder: bool) -> None:
    stranger = tmp_path / (f"{package}/__init__.py" if is_folder else f"{package}.py")
    stranger.parent.mkdir(exist_ok=True)
    stranger.write_text(f"print({SENTINEL!r})\n", encoding="utf-8")
    done = run_python(tmp_path, "-c", "import steplog")
    assert done.returncode == 1
    last_line = done.stderr.strip().splitlines()[-1]
    assert last_line.startswith("ImportError: steplog needs its own package")
    assert str(stranger) in last_line
    assert "Rename that file" in last_line
    assert "python -P" in last_line
    assert SENTINEL not in done.stdout, "a stranger's module is found, never run"


def test_the_users_script_itself_may_be_the_stranger(tmp_path: Path) -> None:
    script = tmp_path / "replay.py"
    script.write_text("import steplog\nprint(steplog.__version__)\n", encoding="utf-8")
    done = run_python(tmp_path, str(script))
    assert str(script) in done.stderr
    assert "Rename that file" in done.stderr


def test_the_fix_that_the_error_names_works(tmp_path: Path) -> None:
    (tmp_path / "replay.py").write_text("raise SystemExit(3)\n", encoding="utf-8")
    done = run_python(tmp_path, "-P", "-c", "import steplog; print(steplog.__version__)")
    assert done.returncode == 0, done.stderr


def test_a_module_that_is_already_loaded_is_named(tmp_path: Path) -> None:
    (tmp_path / "snapshots.py").write_text("", encoding="utf-8")
    done = run_python(tmp_path, "-c", "import snapshots, steplog")
    assert str(tmp_path / "snapshots.py") in done.stderr.splitlines()[-1]


def test_a_folder_without_init_does_not_shadow(tmp_path: Path) -> None:
    # A data folder called replay/ or snapshots/ is as common, and harmless.
    for package in OURS:
        (tmp_path / package).mkdir()
    done = run_python(tmp_path, "-c", "import steplog, replay; print(replay.__file__)")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(ROOT / "replay" / "__init__.py")


def test_half_an_installation_is_named(tmp_path: Path) -> None:
    face = tmp_path / "steplog" / "__init__.py"
    face.parent.mkdir()
    face.write_bytes((ROOT / "steplog" / "__init__.py").read_bytes())
    # Isolated and without site-packages, where this very checkout may be installed.
    alone = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import steplog"
    done = run_python(tmp_path, "-I", "-S", "-c", alone)
    assert "is installed without its package 'eventlog'" in done.stderr
    assert "Reinstall steplog" in done.stderr
