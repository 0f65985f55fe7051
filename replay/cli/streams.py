"""stdout and stderr that may fail: a full disk, a reader that went away, a stream that is closed.

typer ends with exit code 1 where a pipe breaks, and Python with a traceback where a disk is full.
So what became of stdout is kept here, and decides the exit code whatever was raised on the way.
"""

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedWriter, FileIO, TextIOWrapper
from typing import Any

from replay.cli.exit_codes import ExitCode


class Stdout:
    """What became of stdout in one run of the command; `failure` is the first error it gave."""

    def __init__(self) -> None:
        self.failure: OSError | None = None

    def finish(self, code: int) -> int:
        """Write what is left; the exit code, which is not `code` where something got lost."""
        try:
            sys.stdout.flush()
        except OSError as error:
            self.failure = self.failure or error
        if self.failure is None:
            return code
        # Nothing more may be tried, also not by the interpreter's own flush at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if self.failure.errno == errno.EPIPE:
            return ExitCode.BROKEN_PIPE
        reason = os.strerror(self.failure.errno or 0)
        print(f"error: cannot write to stdout: {reason}", file=sys.stderr)
        return ExitCode.UNAVAILABLE


@contextmanager
def guarded_streams() -> Iterator[Stdout | None]:
    """Watch stdout while the block runs, and let no failure of stderr end it.

    None where stdout is closed: then no verb may run, which would open its files in that place.
    """
    before = sys.stdout, sys.stderr
    if sys.stderr is None:
        # `print` would take None for stdout, and so put notes among the data.
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115  (as long as the process)
    else:
        sys.stderr = _on(sys.stderr, _Unfailing)
    stdout = Stdout()
    if sys.stdout is not None:
        sys.stdout = _on(sys.stdout, lambda descriptor: _Watched(descriptor, stdout))
    try:
        yield None if sys.stdout is None else stdout
    finally:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        sys.stdout, sys.stderr = before


class _Watched(FileIO):
    """stdout, which keeps the first error in writing."""

    def __init__(self, descriptor: int, stdout: Stdout) -> None:
        super().__init__(descriptor, "wb", closefd=False)
        self._stdout = stdout

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            self._stdout.failure = self._stdout.failure or error
            raise


class _Unfailing(FileIO):
    """stderr: what cannot be said there is no reason to leave a work half done."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor, "wb", closefd=False)

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def _on(stream: Any, raw_of: Any) -> Any:
    """A stream like `stream` over another raw file; itself where it is no file of the process."""
    buffer = getattr(stream, "buffer", None)
    if type(stream) is not TextIOWrapper or type(buffer) not in (BufferedWriter, FileIO):
        return stream
    raw = raw_of(stream.fileno())
    return TextIOWrapper(
        # With PYTHONUNBUFFERED the raw file stands in the buffer's place.
        BufferedWriter(raw) if type(buffer) is BufferedWriter else raw,
        stream.encoding,
        stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
