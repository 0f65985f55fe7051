"""The wheel as users get it: built from the checkout, installed apart from it, and looked at."""

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from tests.support.sources import PACKAGES, ROOT

USER_CODE = """
import steplog
from steplog import JsonText, SteplogError

text: JsonText = JsonText("{}")


def remember(folder: str) -> str:
    try:
        with steplog.open_workspace(folder) as workspace:
            return workspace.fork("task-17", 2, name="task-17/B")
    except SteplogError as error:
        return error.hint
"""

MISTAKEN_CODE = """
import steplog

with steplog.open_workspace("runs") as workspace:
    workspace.fork("task-17", step="two")
    with workspace.training("run-1") as run:
        run.restore_latest(modle=None)
steplog.JsonText.shout()
steplog.Episode
"""

IMPORT_ALL = """
import pkgutil, sys

for package in sys.argv[1:]:
    for module in pkgutil.walk_packages(__import__(package).__path__, package + "."):
        # What subclasses torch's classes is imported by who has torch, and by nothing of ours.
        is_for_torch = module.name.startswith(("snapshots.shard_", "snapshots.shards."))
        if not (is_for_torch or module.name.endswith("__main__")):
            __import__(module.name)
print(sorted({"numpy", "torch", "pandas"} & set(sys.modules)))
"""


def run(arguments: list[str | Path], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a program in `folder` with nothing of this checkout on its path."""
    environment = {name: value for name, value in os.environ.items() if name[:6] != "PYTHON"}
    return subprocess.run(
        arguments, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT]
    done = run(build, folder)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment that holds the wheel; dependencies come from ours."""
    folder = tmp_path_factory.mktemp("user") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    interpreter = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", interpreter, "--disable-pip-version-check"]
    done = run([*pip, "install", "--no-deps", "--no-index", wheel], folder)
    assert done.returncode == 0, done.stdout + done.stderr
    # Only the folder's own packages are found so: an editable install of this checkout that may be
    # in it hangs on a .pth file, which is read in the environment it belongs to alone.
    (site,) = (folder / "lib").glob("python3.*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    return interpreter


def test_the_wheel_holds_our_packages_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    metadata = {name for name in names if name.partition("/")[0].endswith(".dist-info")}
    assert {name.partition("/")[0] for name in names - metadata} == set(PACKAGES)
    shipped = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.suffix in {".py", ".typed", ".avsc"}
    }
    assert names - metadata >= shipped
    assert {name for name in names - metadata - shipped if not name.endswith("/")} == set()
    assert any(name.endswith("licenses/LICENSE") for name in metadata)


def test_the_command_runs(python: Path, tmp_path: Path) -> None:
    done = run([python.with_name("steplog"), "--help"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Every step logged; any step replayed." in done.stdout
    version = run([python.with_name("steplog"), "--version"], tmp_path)
    imported = run([python, "-c", "import steplog; print(steplog.__version__)"], tmp_path)
    assert version.stdout == f"steplog {imported.stdout}"


def test_the_packages_are_the_installed_ones(python: Path, tmp_path: Path) -> None:
    code = f"import {', '.join(PACKAGES)}; print({', '.join(f'{p}.__file__' for p in PACKAGES)})"
    done = run([python, "-c", code], tmp_path)
    assert done.returncode == 0, done.stderr
    assert all(Path(file).is_relative_to(python.parents[1]) for file in done.stdout.split())


def test_importing_every_module_loads_no_optional_package(python: Path, tmp_path: Path) -> None:
    done = run([python, "-c", IMPORT_ALL, *PACKAGES], tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]", "optional packages are loaded when needed, not before"


def test_a_users_mypy_sees_the_types(python: Path, tmp_path: Path) -> None:
    (tmp_path / "user.py").write_text(USER_CODE, encoding="utf-8")
    (tmp_path / "mistaken.py").write_text(MISTAKEN_CODE, encoding="utf-8")
    mypy = [sys.executable, "-m", "mypy", "--strict", "--python-executable", python]
    mypy += ["--cache-dir", str(tmp_path / "cache"), "--no-error-summary", "--hide-error-context"]
    done = run([*mypy, "user.py"], tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    found = run([*mypy, "mistaken.py"], tmp_path).stdout
    lines = [line for line in found.splitlines() if ": error: " in line]
    assert len(lines) == 4, lines
    assert "[arg-type]" in lines[0]
    assert "[call-arg]" in lines[1]
    assert "[attr-defined]" in lines[2]
    assert "[attr-defined]" in lines[3]
