"""The maker of environments: what was half made is never used, what is not ours never removed."""

import importlib.util
from pathlib import Path

import pytest

from tests.support.data import ROOT

# `.ci` is no package name, so its script is loaded from its file.
_spec = importlib.util.spec_from_file_location("environment", ROOT / ".ci/environment.py")
assert _spec is not None
assert _spec.loader is not None
environment = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(environment)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """What was made; the making itself, which needs a package index, is left out."""
    folders: list[Path] = []

    def make(folder: Path, extras: list[str], *, editable: bool, lock: int) -> None:
        assert extras == ["test"]
        folders.append(folder)
        (folder / "bin").mkdir(parents=True, exist_ok=True)
        (folder / environment.STAMP).touch()
        (folder / "bin/python").unlink(missing_ok=True)
        (folder / "bin/python").symlink_to("/bin/true")
        if editable:
            raise InterruptedError

    monkeypatch.setattr(environment, "_make", make)
    return folders


def test_a_made_environment_is_kept(tmp_path: Path, made: list[Path]) -> None:
    for _ in range(3):
        environment.ensure(tmp_path / "env", ["test"], editable=False)
    assert made == [tmp_path / "env"]


def test_one_that_was_interrupted_is_made_again(tmp_path: Path, made: list[Path]) -> None:
    with pytest.raises(InterruptedError):
        environment.ensure(tmp_path / "env", ["test"], editable=True)
    environment.ensure(tmp_path / "env", ["test"], editable=False)
    assert len(made) == 2


def test_changed_constraints_make_it_again(
    tmp_path: Path, made: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    environment.ensure(tmp_path / "env", ["test"], editable=False)
    monkeypatch.setattr(environment, "key", lambda extras: f"another key for {extras}")
    environment.ensure(tmp_path / "env", ["test"], editable=False)
    assert len(made) == 2


def test_one_whose_python_is_gone_is_made_again(tmp_path: Path, made: list[Path]) -> None:
    environment.ensure(tmp_path / "env", ["test"], editable=False)
    (tmp_path / "env/bin/python").unlink()
    (tmp_path / "env/bin/python").symlink_to(tmp_path / "gone")
    environment.ensure(tmp_path / "env", ["test"], editable=False)
    assert len(made) == 2


def test_one_with_a_large_extra_more_is_kept(
    tmp_path: Path, made: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    environment.ensure(tmp_path / "env", ["test"], editable=False)
    (tmp_path / "env" / environment.STAMP).write_text(environment.key(["test", "torch"]))
    environment.ensure(tmp_path / "env", ["test"], editable=False, or_with=["torch"])
    assert len(made) == 1
    environment.ensure(tmp_path / "env", ["test"], editable=False)
    assert len(made) == 2


@pytest.mark.parametrize("name", ["thesis.txt", "pyvenv.cfg"])
def test_a_folder_that_was_made_by_others_is_left_alone(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    with pytest.raises(SystemExit, match="was not made here"):
        environment.ensure(tmp_path, ["test"], editable=False)
    assert (tmp_path / name).exists()


def test_the_key_holds_the_extras() -> None:
    assert environment.key(["test"]) == environment.key(["test"]) != environment.key(["bench"])
