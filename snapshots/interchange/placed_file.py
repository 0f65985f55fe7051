"""`PlacedFile`: a file of known size that is filled in any order, in runs however short.

Columns of a tensor that ranks held apart are runs of a few bytes each: one call of the operating
system for each would take minutes. Used by export.
"""

import os
import threading
from typing import Final

SHORT_RUN_BYTES: Final = 1 << 10
"""Shorter runs are put in place in memory, and written together."""
SPAN_BYTES: Final = 1 << 22
"""Bytes of the file that are in memory for that at a time, more only where two runs are further
apart."""


class PlacedFile:
    """Writes to places of an open file. Thread-safe among writers of one object."""

    def __init__(self, descriptor: int) -> None:
        """The file has its full size already, and is open for reading too."""
        self._descriptor = descriptor
        # What lies between short runs is read and written back: nobody else may write meanwhile.
        self._lock = threading.Lock()

    def write_runs(self, data: memoryview, place: int, runs: int, apart: int) -> None:
        """Write `data`, cut into `runs` of one length: the first at `place`, each next `apart`
        bytes after the one before. Raises `OSError`."""
        length = len(data) // runs
        if runs == 1 or length == apart:
            with self._lock:
                self._write(data, place)
        elif length > SHORT_RUN_BYTES:
            with self._lock:
                for number in range(runs):
                    self._write(data[number * length : (number + 1) * length], place)
                    place += apart
        else:
            step = max(SPAN_BYTES // apart, 1)
            for number in range(0, runs, step):
                some = data[number * length : (number + step) * length]
                with self._lock:
                    self._weave(some, place + number * apart, length, apart)

    def _weave(self, data: memoryview, place: int, length: int, apart: int) -> None:
        runs = len(data) // length
        span = bytearray(os.pread(self._descriptor, (runs - 1) * apart + length, place))
        if len(span) != (runs - 1) * apart + length:
            raise OSError("the file became shorter while it was written")
        for byte in range(length):
            span[byte::apart] = data[byte::length]
        self._write(memoryview(span), place)

    def _write(self, data: memoryview, place: int) -> None:
        while data:
            written = os.pwrite(self._descriptor, data, place)
            data, place = data[written:], place + written
