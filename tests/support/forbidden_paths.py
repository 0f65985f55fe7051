"""Paths that the operating system refuses, for whoever runs the tests: root passes every mode."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest


def forbid(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    """As `chmod 000`: a file is not opened, a folder not listed, and nothing in it is looked at."""
    for name in ("listdir", "open", "scandir"):
        _refuse(monkeypatch, name, path, itself=True)
    for name in ("lstat", "mkdir", "replace", "rmdir", "stat", "unlink"):
        _refuse(monkeypatch, name, path, itself=False)


def _refuse(monkeypatch: pytest.MonkeyPatch, name: str, refused: Path, *, itself: bool) -> None:
    act = getattr(os, name)

    def refusing(path: Any = ".", *rest: Any, **options: Any) -> Any:
        for one in (path, *rest):
            if isinstance(one, str | os.PathLike) and (
                refused in Path(one).parents or (itself and Path(one) == refused)
            ):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(one))
        return act(path, *rest, **options)

    monkeypatch.setattr(os, name, refusing)
