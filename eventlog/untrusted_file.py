"""Reading files that anyone may have changed: no wait at a pipe, no device, no more than allowed.

What stands at a path may not be what was written there: a pipe would wait for a writer for ever, a
device never ends, a sparse file holds more than memory. So it is looked at before it is read.
Used by the blob and snapshot stores and for `steplog.toml`.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

_READ_BYTES = 1 << 24


class UnfitFile(Exception):  # noqa: N818  (never leaves the modules that read files)
    """What stands at the path is not a file that may be read; the text says what it is."""


@contextmanager
def open_untrusted(path: Path, *, follow_links: bool) -> Iterator[tuple[FileIO, int]]:
    """A plain file, open for reading, and its size in bytes.

    Raises `OSError` where it cannot be opened, `UnfitFile` where it is not a plain file.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow_links else os.O_NOFOLLOW)
    # Not `with os.fdopen`: Python refuses a folder there, with an error of its own.
    descriptor = os.open(path, flags)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise UnfitFile("it is not a file")
        with FileIO(descriptor, closefd=False) as file:
            yield file, status.st_size
    finally:
        os.close(descriptor)


def read_at_most(file: FileIO, bytes_max: int) -> bytes:
    """The first `bytes_max` bytes of a file, fewer only where it ends before. Raises `OSError`."""
    data = file.read(min(bytes_max, _READ_BYTES)) or b""
    if len(data) == bytes_max:
        return data
    parts, left = [data], bytes_max - len(data)
    while data and left:
        data = file.read(min(left, _READ_BYTES)) or b""
        parts.append(data)
        left -= len(data)
    return b"".join(parts)


def read_whole(path: Path, *, bytes_max: int, follow_links: bool = True) -> bytes:
    """All bytes of a plain file of at most `bytes_max`. Raises `OSError`, `UnfitFile`."""
    with open_untrusted(path, follow_links=follow_links) as (file, size):
        if size > bytes_max:
            raise UnfitFile(f"it has {size} bytes; at most {bytes_max} are read")
        # One more than there are: a file that grows meanwhile does not pass for what it was.
        return read_at_most(file, size + 1)
