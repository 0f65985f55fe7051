"""Foreign trace files as records with byte offsets: JSON lines, or one JSON document.

What it gives: every line with the offset of its first byte, so that a report can name the place.
What it refuses, without losing the lines around it: a line over `RECORD_BYTES_MAX`. A last line
that lacks its newline is given like any other, marked: whether it is whole or a stump is known only
once it is parsed. Lines end at LF or CR LF and nowhere else; blank lines and a UTF-8 byte order
mark at the head are passed over. Never writes, never holds a line that is over the limit. A file
system that fails under the reading is `ImportFormatError`.
"""

from collections.abc import Iterator
from typing import BinaryIO, Final, NamedTuple

from eventlog.errors import ImportFormatError

# One record becomes one atomic append; a larger one is no session but a broken file.
RECORD_BYTES_MAX: Final = 64 * 1024 * 1024

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_CHUNK_BYTES: Final = 1024 * 1024


class FileRecord(NamedTuple):
    """One line: its number from 1, the offset of its first byte, its bytes without the line end.

    `ended` is False for a last line that lacks its newline.
    """

    line: int
    offset: int
    data: bytes
    ended: bool


class OversizeLine(NamedTuple):
    """A line of more than `RECORD_BYTES_MAX` bytes, passed over."""

    line: int
    offset: int
    byte_count: int


def read_records(
    file: BinaryIO, *, record_bytes_max: int = RECORD_BYTES_MAX
) -> Iterator[FileRecord | OversizeLine]:
    """The lines that are not blank, in order. `file` is binary and stands at its begin."""
    offset = 0
    line = 0
    while True:
        # Room for the line end, so that a line of exactly the limit passes.
        data = _read_line(file, record_bytes_max + 2)
        if not data:
            return
        line += 1
        begin = offset
        offset += len(data)
        if not data.endswith(b"\n") and len(data) > record_bytes_max:
            offset += _skip_to_line_end(file)
            yield OversizeLine(line, begin, offset - begin)
            continue
        if begin == 0 and data.startswith(_BYTE_ORDER_MARK):
            begin = len(_BYTE_ORDER_MARK)
            data = data[begin:]
        text = without_line_end(data)
        if len(text) > record_bytes_max:
            yield OversizeLine(line, begin, len(data))
        elif text.strip(b" \t\r"):
            yield FileRecord(line, begin, text, data.endswith(b"\n"))


def read_document(
    file: BinaryIO, *, record_bytes_max: int = RECORD_BYTES_MAX
) -> FileRecord | OversizeLine | None:
    """The whole file as one record, never `ended`; None where it is blank."""
    try:
        data = file.read(record_bytes_max + 2)
        count = len(data)
        while count > record_bytes_max + 1 and (chunk := file.read(_CHUNK_BYTES)):
            count += len(chunk)
    except OSError as error:
        raise _unreadable(error) from error
    begin = len(_BYTE_ORDER_MARK) if data.startswith(_BYTE_ORDER_MARK) else 0
    text = without_line_end(data[begin:])
    if count > len(data) or len(text) > record_bytes_max:
        return OversizeLine(1, begin, count - begin)
    return FileRecord(1, begin, text, False) if text.strip() else None


def without_line_end(data: bytes) -> bytes:
    """`data` without one LF or CR LF at its end."""
    if data.endswith(b"\r\n"):
        return data[:-2]
    return data[:-1] if data.endswith(b"\n") else data


def _skip_to_line_end(file: BinaryIO) -> int:
    skipped = 0
    while chunk := _read_line(file, _CHUNK_BYTES):
        skipped += len(chunk)
        if chunk.endswith(b"\n"):
            break
    return skipped


def _read_line(file: BinaryIO, byte_count_max: int) -> bytes:
    try:
        return file.readline(byte_count_max)
    except OSError as error:
        raise _unreadable(error) from error


def _unreadable(error: OSError) -> ImportFormatError:
    return ImportFormatError(
        f"the file cannot be read on: {error.strerror or error}", hint="check the disk it lies on"
    )
