"""What of a SQLite log belongs to this process: writers by file, and what a fork leaves behind.

No connection survives a fork (`fork_gate`). Where one had to be carried over all the same, the
child must neither use it nor close it, which could drop files that the parent still uses.
"""

import atexit
import ctypes
import os
import threading
from collections.abc import Iterable
from pathlib import Path

from eventlog.keeping.log_writer import LogWriter
from eventlog.sqlite.committer import Committer

SqliteWriter = LogWriter[Committer]


class _Process:
    """This process's writers, each with the number of handles that use it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.writers: dict[Path, SqliteWriter] = {}
        self.handles: dict[Path, int] = {}


_process = _Process()


def share_writer(path: Path, commit_deadline_s: float) -> SqliteWriter:
    """The process's writer of the log at `path` (links resolved); give it back when done."""
    with _process.lock:
        writer = _process.writers.get(path)
        if writer is None:
            writer = _process.writers[path] = LogWriter(Committer(path), commit_deadline_s)
        writer.shorten_deadline(commit_deadline_s)
        _process.handles[path] = _process.handles.get(path, 0) + 1
        return writer


def give_back_writer(path: Path) -> None:
    """The last handle's giving back stops the writer, after all that was submitted is answered."""
    with _process.lock:
        _process.handles[path] -= 1
        if _process.handles[path]:
            return
        del _process.handles[path]
        writer = _process.writers.pop(path)
    writer.stop()


def never_finalise(objects: Iterable[object]) -> None:
    """Keep objects of the parent alive in a forked child until it ends, and past it."""
    for each in objects:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(each))


def _forget_parent() -> None:
    global _process
    parent, _process = _process, _Process()
    for writer in parent.writers.values():
        never_finalise(writer.committer.left_behind())


def _stop_all() -> None:
    """At exit: what was submitted is written, and reported to whoever still waits."""
    with _process.lock:
        writers = list(_process.writers.values())
    for writer in writers:
        writer.stop()
        writer.report_unheard()


os.register_at_fork(after_in_child=_forget_parent)
atexit.register(_stop_all)
