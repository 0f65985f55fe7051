"""Our own sources, parsed once, for the tests that hold the house rules."""

import ast
import functools
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("eventlog", "snapshots", "replay", "steplog")
"""The import packages, from the ground up: none may import from one that stands after it."""


@functools.cache
def python_files(*folders: str) -> tuple[Path, ...]:
    """Every Python file under these folders of the repository, sorted."""
    return tuple(sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py")))


@functools.cache
def text_of(path: Path) -> str:
    """The text of one source."""
    return path.read_text(encoding="utf-8")


@functools.cache
def parsed(path: Path) -> ast.Module:
    """The syntax tree of one source."""
    return ast.parse(text_of(path), filename=str(path))


def short(path: Path) -> str:
    """The path as messages give it: from the root of the repository."""
    return path.relative_to(ROOT).as_posix()


def module_name(path: Path) -> str:
    """The name a source is imported by: `eventlog.cut`, or `eventlog` for its `__init__`."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def modules() -> dict[str, Path]:
    """Each module of our packages, by name."""
    return {module_name(path): path for path in python_files(*PACKAGES)}


@functools.cache
def tracked_files() -> tuple[Path, ...]:
    """What git tracks, as far as it is there; nothing where this is no checkout."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    paths = (ROOT / name for name in listed.stdout.split("\0") if name)
    return tuple(path for path in paths if path.is_file())


def no_findings(found: Iterable[str], fix: str) -> None:
    """Fail the calling test with every finding on its own line, and what to do about them."""
    listed = sorted(set(found))
    if listed:
        pytest.fail(f"{fix}:\n  " + "\n  ".join(listed), pytrace=False)
