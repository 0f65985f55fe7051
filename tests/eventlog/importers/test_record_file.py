"""Lines of a trace file, each with its byte offset: what ends a line, what is passed over."""

import io
import random

import pytest

from eventlog.errors import ImportFormatError
from eventlog.importers.record_file import (
    FileRecord,
    OversizeLine,
    read_document,
    read_records,
    without_line_end,
)


def records_of(data: bytes, **limits: int) -> list[FileRecord | OversizeLine]:
    return list(read_records(io.BytesIO(data), **limits))


def test_lines_have_numbers_offsets_and_exact_bytes() -> None:
    assert records_of(b'{"a": 1 }\n{"b":2}\r\n[3]') == [
        FileRecord(1, 0, b'{"a": 1 }', True),
        FileRecord(2, 10, b'{"b":2}', True),
        FileRecord(3, 19, b"[3]", False),
    ]


@pytest.mark.parametrize("data", [b"", b"\n", b"\n \t\r\n\n", b"\xef\xbb\xbf", b"\xef\xbb\xbf\n"])
def test_a_file_without_records_gives_none(data: bytes) -> None:
    assert records_of(data) == []
    assert read_document(io.BytesIO(data)) is None


def test_blank_lines_count_as_lines_and_give_no_record() -> None:
    assert records_of(b"\n1\n \n\r\n2\n\n") == [
        FileRecord(2, 1, b"1", True),
        FileRecord(5, 7, b"2", True),
    ]


def test_a_byte_order_mark_at_the_head_is_no_part_of_the_record() -> None:
    assert records_of(b"\xef\xbb\xbf1\n\xef\xbb\xbf2\n") == [
        FileRecord(1, 3, b"1", True),
        FileRecord(2, 5, b"\xef\xbb\xbf2", True),
    ]
    assert read_document(io.BytesIO(b"\xef\xbb\xbf{}\n")) == FileRecord(1, 3, b"{}", False)


def test_only_lf_ends_a_line() -> None:
    # U+2028, U+0085, vertical tab and a lone CR are characters of JSON text, or an error in it.
    line = '"\u2028\u0085\x0b\r"'.encode()
    assert records_of(line + b"\n") == [FileRecord(1, 0, line, True)]


def test_a_line_over_the_limit_is_passed_over_and_the_next_is_found() -> None:
    long = b"x" * 3000
    data = b"1\n" + long + b"\n2\n" + long
    assert records_of(data, record_bytes_max=100) == [
        FileRecord(1, 0, b"1", True),
        OversizeLine(2, 2, 3001),
        FileRecord(3, 3003, b"2", True),
        OversizeLine(4, 3005, 3000),
    ]


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
@pytest.mark.parametrize("over", [0, 1, 2, 3])
def test_the_limit_is_exact_whatever_ends_the_line(end: bytes, over: int) -> None:
    text = b"x" * (50 + over)
    (found,) = records_of(text + end, record_bytes_max=50)
    document = read_document(io.BytesIO(text + end), record_bytes_max=50)
    if over:
        assert found == OversizeLine(1, 0, len(text + end))
        assert document == found
    else:
        assert found == FileRecord(1, 0, text, end != b"")
        assert document == FileRecord(1, 0, text, False)


def test_a_document_is_the_whole_file_without_its_last_line_end() -> None:
    assert read_document(io.BytesIO(b"{\n}\n\n")) == FileRecord(1, 0, b"{\n}\n", False)
    assert read_document(io.BytesIO(b"{\n}")) == FileRecord(1, 0, b"{\n}", False)
    assert without_line_end(b"a\r\n\r\n") == b"a\r\n"


def test_offsets_find_every_line_again_in_random_files() -> None:
    chance = random.Random(11)
    for _ in range(300):
        pieces = [b"\n", b"\r\n", b"a", b"{}", b" ", b"\xff", b"\r", b"bb" * 20, b"\xef\xbb\xbf"]
        data = b"".join(chance.choice(pieces) for _ in range(chance.randrange(30)))
        limit = chance.choice([5, 30, 1000])
        covered = 0
        for record in records_of(data, record_bytes_max=limit):
            assert record.offset >= covered
            assert data[covered : record.offset].strip(b" \t\r\n\xef\xbb\xbf") == b""
            if isinstance(record, FileRecord):
                covered = record.offset + len(record.data)
                assert data[record.offset : covered] == record.data
                assert len(record.data) <= limit
                assert record.ended == (b"\n" in data[covered:])
            else:
                covered = record.offset + record.byte_count
        assert data[covered:].strip(b" \t\r\n\xef\xbb\xbf") == b""


def test_a_disk_that_fails_is_an_error_of_ours() -> None:
    class FailingFile(io.BytesIO):
        def readline(self, size: int | None = -1, /) -> bytes:
            raise OSError(5, f"Input/output error {size}")

        def read(self, size: int | None = -1, /) -> bytes:
            raise OSError(5, f"Input/output error {size}")

    with pytest.raises(ImportFormatError, match="Input/output error"):
        list(read_records(FailingFile()))
    with pytest.raises(ImportFormatError, match="Input/output error"):
        read_document(FailingFile())
