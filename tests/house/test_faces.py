"""The faces: `steplog` re-exports lazily just what it says; the packages' define nothing."""

import ast
import inspect
import subprocess
import sys

import pytest

import steplog
from tests.support.sources import PACKAGES, ROOT, no_findings, parsed, python_files, short

FACE_LINES_MAX = 130
INIT_LINES_MAX = 40

HEAVY = {
    "asyncio",
    "fastavro",
    "kafka",
    "numpy",
    "ormsgpack",
    "pandas",
    "pydantic",
    "rich",
    "sqlite3",
    "starlette",
    "torch",
    "typer",
    "zstandard",
}


def test_all_is_sorted_and_exact() -> None:
    # `sorted` as written: constants and classes before functions, as any reader would sort a list.
    assert list(steplog.__all__) == sorted(steplog.__all__)
    assert dir(steplog) == sorted(steplog.__all__)
    assert len(set(steplog.__all__)) == len(steplog.__all__)


@pytest.mark.parametrize("name", steplog.__all__)
def test_every_name_of_the_face_is_there(name: str) -> None:
    value = getattr(steplog, name)
    assert getattr(steplog, name) is value
    if inspect.isclass(value) or inspect.isfunction(value):
        assert inspect.getdoc(value), f"steplog.{name} has no docstring"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'steplog' has no attribute 'Episode'"):
        _ = steplog.Episode  # type: ignore[attr-defined]


def test_type_checkers_see_the_same_names() -> None:
    tree = parsed(ROOT / "steplog" / "__init__.py")
    shown = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGES)
        for alias in node.names
    }
    assert shown == set(steplog.__all__)


def test_importing_steplog_is_light() -> None:
    loaded = subprocess.run(
        [sys.executable, "-c", "import steplog, sys; print(*sys.modules)"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert HEAVY.isdisjoint(loaded), "import steplog must not load these; the face is lazy"


def test_the_packages_own_faces_define_nothing() -> None:
    found = []
    for path in python_files(*PACKAGES):
        if path.name != "__init__.py" or path.parent.name == "steplog":
            continue
        tree = parsed(path)
        if len(tree.body) != 1 or ast.get_docstring(tree) is None:
            found.append(f"{short(path)}: holds more than its docstring")
        if len(path.read_text(encoding="utf-8").splitlines()) > INIT_LINES_MAX:
            found.append(f"{short(path)}: over {INIT_LINES_MAX} lines")
    no_findings(found, "define it in a module that is named for it")


def test_the_face_is_read_in_a_minute() -> None:
    text = (ROOT / "steplog" / "__init__.py").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= FACE_LINES_MAX
    assert {path.name for path in (ROOT / "steplog").iterdir()} - {"__pycache__"} == {
        "__init__.py",
        "py.typed",
    }


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_ships_its_types(package: str) -> None:
    assert (ROOT / package / "py.typed").exists()
