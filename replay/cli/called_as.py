"""How this run of the command was started, so that what it says to type can be typed."""

import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Final

NAME: Final = "steplog"


def command_name() -> str:
    """`steplog` where the shell finds this one, else the file or the module that was started."""
    started = Path(sys.argv[0])
    if started.parts[-3:] == ("replay", "cli", "__main__.py"):
        python = Path(sys.executable)
        beside = python.with_name(NAME)
        return _told(beside) if beside.exists() else f"{_told(python)} -m replay.cli"
    if started.name == NAME:
        return _told(started)
    return NAME  # within a process of another program


def _told(file: Path) -> str:
    found = shutil.which(file.name)
    try:
        if found is not None and Path(found).absolute() == file.absolute():
            return file.name
        relative = os.path.relpath(file)
    except OSError:  # the working folder is gone
        return shlex.quote(str(file))
    return shlex.quote(str(file) if relative.startswith(os.pardir) else relative)
