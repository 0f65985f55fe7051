"""Child processes for tests: small scripts that import steplog and talk over pipes."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# Every warning is an error, but for the ones that pyproject.toml excuses too.
WARNINGS = ["-W", "error"]
for _name in ("read_text", "open_text"):
    WARNINGS += ["-W", f"ignore:{_name} is deprecated:DeprecationWarning"]
WARNINGS += ["-W", "ignore:unclosed <socket.socket:ResourceWarning"]


def python_script(code: str, *arguments: str | os.PathLike[str]) -> "subprocess.Popen[str]":
    """Start a Python process that runs `code` with the repository on its path."""
    return subprocess.Popen(
        [sys.executable, *WARNINGS, "-c", code, *map(os.fspath, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def finish(process: "subprocess.Popen[str]", timeout_s: float = 300) -> str:
    """Wait for the process and return what it printed; its errors fail the test."""
    out, err = process.communicate(timeout=timeout_s)
    assert process.returncode == 0, f"exit {process.returncode}\n{err}"
    return out
