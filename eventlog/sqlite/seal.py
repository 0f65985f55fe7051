"""Seals: the checksum by which a row that proves nothing by itself is believed, or refused."""

from collections.abc import Sequence
from typing import Any
from zlib import crc32

from eventlog.errors import EventCorruptError


def seal_of(values: Sequence[Any]) -> int:
    """The checksum of a row: CRC-32 of the text that `ascii` gives for the tuple of its values.

    `ascii` because it is the same in every Python, and takes half the time of canonical bytes.
    """
    return crc32(ascii(tuple(values)).encode("ascii"))


def require_seal(seal: object, values: Sequence[Any], what: str, **place: Any) -> None:
    """Raise `EventCorruptError` naming `what` unless the seal is that of the values."""
    if seal != seal_of(values):
        raise damaged(f"the row of {what} is not what was written", **place)


def damaged(message: str, **place: Any) -> EventCorruptError:
    """An error for rows that cannot be believed."""
    return EventCorruptError(
        message, hint="run `steplog check`; restore the log from a copy", **place
    )
