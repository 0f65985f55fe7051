"""zstd frames: what is written is read back, and nothing else is ever read."""

import random
from collections.abc import Callable
from contextlib import suppress

import pytest
import zstandard

from eventlog.errors import SnapshotError
from snapshots.compression import (
    RAW_BYTES_MAX,
    WINDOW_BYTES_MAX,
    read_delta,
    read_frame,
    read_full,
    write_delta,
    write_full,
)
from tests.support.data import data_path
from tests.support.scale import scaled

MARK = b"\x28\xb5\x2f\xfd"
SKIPPABLE = b"\x50\x2a\x4d\x18\x00\x00\x00\x00"
TEXT = b"".join(b"step %d: the tool answered %d\n" % (n, n * n) for n in range(300))
SAMPLES = [b"", b"\x00", b"x" * 100_000, bytes(range(256)), TEXT, random.Random(1).randbytes(9_000)]


@pytest.mark.parametrize("raw", SAMPLES, ids=len)
def test_a_full_frame_gives_its_bytes_back(raw: bytes) -> None:
    frame = write_full(raw)
    assert read_full(frame, raw_bytes=len(raw)) == raw
    assert read_frame(frame) == raw
    parameters = zstandard.get_frame_parameters(frame)
    assert parameters.content_size == len(raw)
    assert parameters.has_checksum


@pytest.mark.parametrize("raw", SAMPLES, ids=len)
@pytest.mark.parametrize("base", SAMPLES[1:], ids=len)
def test_a_delta_gives_its_bytes_back_with_its_base(raw: bytes, base: bytes) -> None:
    frame = write_delta(raw, base)
    assert read_delta(frame, base, raw_bytes=len(raw)) == raw
    parameters = zstandard.get_frame_parameters(frame)
    assert (parameters.content_size, parameters.dict_id) == (len(raw), 0)
    assert parameters.has_checksum


def test_a_delta_is_readable_by_zstandard_alone() -> None:
    """The format says: the base is raw-content prefix. So any zstd with it must do."""
    frame = write_delta(TEXT + b"more", TEXT)
    base = zstandard.ZstdCompressionDict(TEXT, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
    assert zstandard.ZstdDecompressor(dict_data=base).decompress(frame) == TEXT + b"more"


def test_a_base_that_looks_like_a_trained_dictionary_is_raw_content() -> None:
    base = b"\x37\xa4\x30\xec" + TEXT
    frame = write_delta(TEXT, base)
    assert read_delta(frame, base, raw_bytes=len(TEXT)) == TEXT


@pytest.mark.parametrize("megabytes", [1, 3])
def test_a_small_change_in_a_large_state_makes_a_small_delta(megabytes: int) -> None:
    """Where the tables are too small for the base, a delta silently becomes a full frame."""
    source = random.Random(7)
    base = b"".join(source.randbytes(20).hex().encode() for _ in range(megabytes * 25_000))
    middle = len(base) // 2
    raw = base[:middle] + b"one record was changed" + base[middle + 10 :]
    frame = write_delta(raw, base)
    assert read_delta(frame, base, raw_bytes=len(raw)) == raw
    assert len(frame) < 1_000


def test_an_empty_base_is_refused() -> None:
    with pytest.raises(SnapshotError, match="empty base"):
        write_delta(b"state", b"")
    with pytest.raises(SnapshotError, match="empty base"):
        read_delta(write_full(b"state"), b"", raw_bytes=5)


def test_another_base_is_never_read_as_another_state() -> None:
    """Without the checksum, 100 of 100 bases with one other bit gave other bytes in silence."""
    source = random.Random(3)
    base = source.randbytes(4_000)
    raw = base[:1_000] + b"changed" + base[1_000:]
    frame = write_delta(raw, base)
    for _ in range(scaled(100, 1_000)):
        other = bytearray(base)
        other[source.randrange(len(other))] ^= 1 << source.randrange(8)
        assert_same_or_refused(
            lambda other=other: read_delta(frame, bytes(other), raw_bytes=4_007), raw
        )


@pytest.mark.parametrize("raw", [b"", b"\x00", TEXT[:200]], ids=len)
def test_no_single_flip_or_cut_is_read_as_other_bytes(raw: bytes) -> None:
    frame = write_full(raw)
    for place in range(len(frame)):
        for bit in range(8):
            flipped = bytearray(frame)
            flipped[place] ^= 1 << bit
            read = lambda data=bytes(flipped): read_full(data, raw_bytes=len(raw))  # noqa: E731
            assert_same_or_refused(read, raw)
            read = lambda data=bytes(flipped): read_frame(data, raw_bytes_max=1 << 20)  # noqa: E731
            if frame[4] & 4 and not flipped[4] & 4:
                continue  # the bit that says there is a checksum: read_full insists on it
            assert_same_or_refused(read, raw)
        with pytest.raises(SnapshotError):
            read_full(frame[:place], raw_bytes=len(raw))
        with pytest.raises(SnapshotError):
            read_frame(frame[:place])


@pytest.mark.parametrize("raw", [b"", TEXT], ids=len)
@pytest.mark.parametrize(
    "more", [b"\x00", MARK, write_full(TEXT), b"\x50\x2a\x4d\x18\x00\x00\x00\x00"]
)
def test_bytes_after_the_frame_are_refused(raw: bytes, more: bytes) -> None:
    for read in (lambda data: read_full(data, raw_bytes=len(raw)), read_frame):
        with pytest.raises(SnapshotError, match=r"unused|followed"):
            read(write_full(raw) + more)


def test_a_frame_without_checksum_or_size_is_no_snapshot_body() -> None:
    plain = zstandard.ZstdCompressor(write_checksum=False).compress(TEXT)
    with pytest.raises(SnapshotError, match="no checksum"):
        read_full(plain, raw_bytes=len(TEXT))
    sizeless = zstandard.ZstdCompressor(write_checksum=True, write_content_size=False)
    with pytest.raises(SnapshotError, match="declares no size"):
        read_full(sizeless.compress(TEXT), raw_bytes=len(TEXT))


def test_another_declared_size_is_refused() -> None:
    for raw_bytes in (0, len(TEXT) - 1, len(TEXT) + 1):
        with pytest.raises(SnapshotError, match=f"declares {len(TEXT)} bytes"):
            read_full(write_full(TEXT), raw_bytes=raw_bytes)


def header(
    *, declared: int | None = None, window_byte: int | None = None, dict_id: int = 0
) -> bytes:
    """A frame with this header, one last block with one repeated byte, and a false checksum."""
    single = 0x20 if window_byte is None else 0
    sized = 0xC0 if declared is not None else 0
    descriptor = sized | single | 0x04 | (1 if dict_id else 0)
    parts = [MARK, bytes([descriptor])]
    if window_byte is not None:
        parts.append(bytes([window_byte]))
    if dict_id:
        parts.append(bytes([dict_id]))
    if declared is not None:
        parts.append(declared.to_bytes(8, "little"))
    elif single:
        parts.append(b"\x01")
    return b"".join([*parts, (1 | 1 << 1 | 1 << 3).to_bytes(3, "little"), b"z", b"\x00" * 4])


@pytest.mark.parametrize("declared", [RAW_BYTES_MAX + 1, 1 << 40, (1 << 63) + 5])
def test_a_declared_size_over_the_bound_is_refused_before_it_is_allocated(declared: int) -> None:
    """The state's record says as much as the frame: 2^40 bytes would end the process."""
    frame = header(declared=declared, window_byte=0)
    with pytest.raises(SnapshotError, match="at most"):
        read_full(frame, raw_bytes=declared)
    with pytest.raises(SnapshotError, match="at most"):
        read_frame(frame)


def test_a_frame_of_unknown_size_stops_at_the_bound() -> None:
    """125 kB of repeated-byte blocks hold 4 GiB; reading them must not take as much."""
    sizeless = zstandard.ZstdCompressor(write_content_size=False)
    frame = sizeless.compress(bytes(64 << 20))
    assert len(frame) < 10_000
    with pytest.raises(SnapshotError, match="more than 1000 bytes"):
        read_frame(frame, raw_bytes_max=1_000)


def test_a_window_over_the_bound_is_refused() -> None:
    assert WINDOW_BYTES_MAX == 1 << 30
    with pytest.raises(SnapshotError, match="window of 2147483648 bytes"):
        read_full(header(declared=1, window_byte=21 << 3), raw_bytes=1)


def test_a_frame_that_needs_a_dictionary_is_refused() -> None:
    with pytest.raises(SnapshotError, match="dictionary 77"):
        read_full(header(dict_id=77), raw_bytes=1)


@pytest.mark.parametrize("data", [b"", MARK, b"\x50\x2a\x4d\x18\x04\x00\x00\x00abcd", b"<?xml"])
def test_what_is_no_zstd_frame_is_refused(data: bytes) -> None:
    with pytest.raises(SnapshotError):
        read_full(data, raw_bytes=4)
    with pytest.raises(SnapshotError):
        read_frame(data)


@pytest.mark.parametrize(
    ("name", "size"), [("empty-block.zst", 0), ("rle-first-block.zst", 1 << 20)]
)
def test_golden_frames_of_zstd_are_read(name: str, size: int) -> None:
    assert read_frame(data_path("vectors", "zstd", name).read_bytes()) == bytes(size)


def test_the_golden_frame_with_a_zero_offset_is_refused() -> None:
    frame = data_path("vectors", "zstd", "error_off0.bin.zst").read_bytes()
    for read in (lambda: read_frame(frame), lambda: read_full(frame, raw_bytes=1 << 10)):
        with pytest.raises(SnapshotError):
            read()


@pytest.mark.parametrize("name", ["empty-block.zst", "rle-first-block.zst"])
def test_golden_frames_cut_anywhere_are_refused(name: str) -> None:
    frame = data_path("vectors", "zstd", name).read_bytes()
    for end in range(len(frame)):
        with pytest.raises(SnapshotError):
            read_frame(frame[:end])


def test_the_golden_input_survives_and_is_itself_no_frame() -> None:
    raw = data_path("vectors", "zstd", "http").read_bytes()
    assert read_full(write_full(raw), raw_bytes=len(raw)) == raw
    for base in (raw, raw[:600], raw[::-1]):
        assert read_delta(write_delta(raw, base), base, raw_bytes=len(raw)) == raw
    with pytest.raises(SnapshotError, match="begins with"):
        read_frame(raw)


def assert_same_or_refused(read: Callable[[], bytes], raw: bytes) -> None:
    with suppress(SnapshotError):
        assert read() == raw
