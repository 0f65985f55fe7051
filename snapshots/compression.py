"""zstd frames: bytes packed whole, or against a base; the only place with zstandard.

Every frame written here carries its content size and a checksum. A reader believes neither before
it has compared: the declared size with what the caller expects and with a fixed bound, before
anything of that size is allocated. All damage leaves as `SnapshotError`.
"""

import threading
from typing import Final, TypeAlias

from zstandard import (
    CONTENTSIZE_ERROR,
    CONTENTSIZE_UNKNOWN,
    DICT_TYPE_RAWCONTENT,
    STRATEGY_FAST,
    FrameParameters,
    ZstdCompressionDict,
    ZstdCompressionParameters,
    ZstdCompressor,
    ZstdDecompressor,
    ZstdError,
    get_frame_parameters,
)

from eventlog.errors import SnapshotError

ReadableBuffer: TypeAlias = bytes | bytearray | memoryview

RAW_BYTES_MAX: Final = 1 << 30
"""Most bytes one frame may hold: the limit of a canonical value (docs/formats.md)."""
WINDOW_BYTES_MAX: Final = 1 << 30
"""Largest window a frame may ask a reader to keep."""
FRAME_BYTES_MAX: Final = RAW_BYTES_MAX + (RAW_BYTES_MAX >> 8) + 1024
"""Largest frame: bytes that do not compress, and zstd's own bound on what it adds to them."""

# Level 2 costs 1.2 ms a MB on a 2.5 MB state of records, level 3 1.4 for 2 % fewer bytes; with
# the hashes around it level 3 is at the bar of 2 ms a MB, level 2 well under it (benchmarks/).
_FULL_LEVEL: Final = 2

# python-zstandard gives a prefix to zstd as a dictionary, for which level 3's tables are too small:
# a one-record change in a 2.5 MB state took 160 kB. The fast strategy with a hash table of a
# quarter of the base's bytes takes 403 B in less time (1.0 ms a MB); a table of four bytes an
# entry is larger than a processor's cache from 23 bits on, and then costs five times the time.
_DELTA_LEVEL: Final = 1
_DELTA_MATCH_BYTES_MIN: Final = 7
_DELTA_HASH_BITS_MIN: Final = 17
_DELTA_HASH_BITS_MAX: Final = 22
# Bytes of floating-point numbers repeat nowhere, they are only distributed unevenly: a table too
# small to find matches, and no search for short ones, leaves the Huffman coder alone with them:
# half the time of level 1, and smaller (benchmarks/torch_checkpoints.py).
_DENSE: Final = ZstdCompressionParameters(
    window_log=17,
    hash_log=6,
    chain_log=6,
    search_log=1,
    min_match=7,
    target_length=0,
    strategy=STRATEGY_FAST,
    write_content_size=True,
)
_SPARSE: Final = ZstdCompressionParameters.from_level(1, write_content_size=True)

_per_thread: Final = threading.local()
_FRAME_MARK: Final = b"\x28\xb5\x2f\xfd"
_HEADER_BYTES_MAX: Final = 18  # RFC 8878: magic number and frame header
_WINDOW_BITS_MIN: Final = 10
_WINDOW_BITS_MAX: Final = 30

_SLICE_BYTES: Final = 4096  # a frame without a declared size grows by at most 128 MiB a slice


def write_full(raw: bytes) -> bytes:
    """`raw` as one frame that stands alone. Raises `SnapshotError` over `RAW_BYTES_MAX`."""
    _refuse_raw_size(len(raw))
    packer = ZstdCompressor(level=_FULL_LEVEL, write_checksum=True, write_content_size=True)
    return packer.compress(raw)


def read_full(frame: bytes, *, raw_bytes: int) -> bytes:
    """The bytes of a frame of `write_full`; `raw_bytes` is what they must count.

    Raises `SnapshotError` where the frame declares another size or none, has no checksum, is cut,
    altered, or followed by anything.
    """
    _refuse_other_frame(frame, raw_bytes)
    return _read_declared(frame, raw_bytes, ZstdDecompressor())


def write_delta(raw: bytes, base: bytes) -> bytes:
    """`raw` as one frame that only `base` opens: `base` is the raw content before it.

    Raises `SnapshotError` where either is over `RAW_BYTES_MAX`, or `base` is empty.
    """
    _refuse_raw_size(len(raw))
    prefix = _raw_prefix(base)
    window_bits = (len(raw) + len(base)).bit_length()
    parameters = ZstdCompressionParameters.from_level(
        _DELTA_LEVEL,
        window_log=min(max(window_bits, _WINDOW_BITS_MIN), _WINDOW_BITS_MAX),
        hash_log=min(
            max(len(base).bit_length() - 2, _DELTA_HASH_BITS_MIN),
            _DELTA_HASH_BITS_MAX,
        ),
        min_match=_DELTA_MATCH_BYTES_MIN,
        write_checksum=True,
        write_content_size=True,
        write_dict_id=False,
    )
    return ZstdCompressor(dict_data=prefix, compression_params=parameters).compress(raw)


def read_delta(frame: bytes, base: bytes, *, raw_bytes: int) -> bytes:
    """The bytes of a frame of `write_delta`, with the base it was written against.

    A frame's checksum finds a wrong base (without it, another base gives other bytes in silence).
    Raises `SnapshotError` as `read_full` does.
    """
    _refuse_other_frame(frame, raw_bytes)
    return _read_declared(frame, raw_bytes, ZstdDecompressor(dict_data=_raw_prefix(base)))


def read_frame(frame: bytes, *, raw_bytes_max: int = RAW_BYTES_MAX) -> bytes:
    """The bytes of any one zstd frame, also of other makers: size and checksum may be left out.

    Raises `SnapshotError` where the bytes are not one whole frame, or hold over `raw_bytes_max`.
    """
    parameters = _read_parameters(frame)
    declared = parameters.content_size
    if declared == CONTENTSIZE_UNKNOWN:
        reader = ZstdDecompressor(max_window_size=WINDOW_BYTES_MAX)
        return _read_by_slices(frame, raw_bytes_max, reader)
    if declared > raw_bytes_max:
        raise _damage(f"declares {declared} bytes; at most {raw_bytes_max} are read")
    return _read_declared(frame, declared, ZstdDecompressor())


def write_dense(raw: ReadableBuffer) -> bytes:
    """`raw` as a frame without checksum, for bytes that repeat nowhere (planes of numbers)."""
    return _own_packer("dense", _DENSE).compress(raw)


def write_sparse(raw: ReadableBuffer) -> bytes:
    """`raw` as a frame without checksum, for bytes that are mostly zero, or repeat."""
    return _own_packer("sparse", _SPARSE).compress(raw)


def read_bare(frame: ReadableBuffer, *, raw_bytes: int) -> bytes:
    """The bytes of a frame of `write_dense` or `write_sparse`; the caller holds their hash.

    Raises `SnapshotError` where the frame declares another size, is cut, or is no frame.
    """
    parameters = _read_parameters(bytes(frame[:_HEADER_BYTES_MAX]))
    if parameters.content_size != raw_bytes:
        raise _damage(f"declares {parameters.content_size} bytes; {raw_bytes} are expected")
    return _read_declared(frame, raw_bytes, _own_reader())


def _own_packer(name: str, parameters: ZstdCompressionParameters) -> ZstdCompressor:
    """This thread's packer of that name, for the same reason as `_own_reader`."""
    packer: ZstdCompressor | None = getattr(_per_thread, name, None)
    if packer is None:
        packer = ZstdCompressor(compression_params=parameters)
        setattr(_per_thread, name, packer)
    return packer


def _own_reader() -> ZstdDecompressor:
    """This thread's reader: to make one takes longer than to read a small frame."""
    reader: ZstdDecompressor | None = getattr(_per_thread, "reader", None)
    if reader is None:
        reader = _per_thread.reader = ZstdDecompressor()
    return reader


def _raw_prefix(base: bytes) -> ZstdCompressionDict:
    if not base:
        raise _damage("has an empty base")
    _refuse_raw_size(len(base))
    return ZstdCompressionDict(base, dict_type=DICT_TYPE_RAWCONTENT)


def _refuse_raw_size(raw_bytes: int) -> None:
    if raw_bytes > RAW_BYTES_MAX:
        raise SnapshotError(
            f"{raw_bytes} bytes are over the limit of {RAW_BYTES_MAX} for one zstd frame",
            hint="keep large values out of the state, as blobs",
        )


def _refuse_other_frame(frame: bytes, raw_bytes: int) -> None:
    """Compare the frame's header with what is expected; nothing is decompressed yet."""
    if raw_bytes > RAW_BYTES_MAX:
        raise _damage(f"is said to hold {raw_bytes} bytes; at most {RAW_BYTES_MAX} are read")
    parameters = _read_parameters(frame)
    declared = parameters.content_size
    if declared != raw_bytes:
        known = "no size" if declared == CONTENTSIZE_UNKNOWN else f"{declared} bytes"
        raise _damage(f"declares {known}; {raw_bytes} are expected")
    if not parameters.has_checksum:
        raise _damage("has no checksum")


def _read_parameters(frame: bytes) -> FrameParameters:
    if not frame.startswith(_FRAME_MARK):
        raise _damage(f"begins with {frame[:4].hex()!r}, not {_FRAME_MARK.hex()!r}")
    try:
        parameters = get_frame_parameters(frame)
    except (ZstdError, ValueError) as error:
        raise _damage(f"cannot be read: {error}") from error
    if parameters.content_size == CONTENTSIZE_ERROR:
        raise _damage("cannot be read: its size is not readable")
    if parameters.dict_id != 0:
        raise _damage(f"needs the dictionary {parameters.dict_id}, which is not part of the format")
    if parameters.window_size > WINDOW_BYTES_MAX:
        raise _damage(
            f"asks for a window of {parameters.window_size} bytes; "
            f"at most {WINDOW_BYTES_MAX} are given"
        )
    return parameters


def _read_declared(frame: ReadableBuffer, raw_bytes: int, reader: ZstdDecompressor) -> bytes:
    if raw_bytes == 0:  # zstandard answers b"" to a declared 0 without looking at the frame
        return _read_by_slices(frame, 0, reader)
    try:
        raw = reader.decompress(frame, allow_extra_data=False)
    except (ZstdError, ValueError, MemoryError) as error:
        raise _damage(f"cannot be read: {error}") from error
    if len(raw) != raw_bytes:
        raise _damage(f"holds {len(raw)} bytes; {raw_bytes} are expected")
    return raw


def _read_by_slices(frame: ReadableBuffer, raw_bytes_max: int, reader: ZstdDecompressor) -> bytes:
    """Read so that a frame of unknown size cannot take memory far past its bound."""
    source = reader.decompressobj()
    parts: list[bytes] = []
    total = 0
    for start in range(0, len(frame), _SLICE_BYTES):
        if source.eof:
            raise _damage("is followed by other bytes")
        try:
            part = source.decompress(frame[start : start + _SLICE_BYTES])
        except (ZstdError, MemoryError) as error:
            raise _damage(f"cannot be read: {error}") from error
        total += len(part)
        if total > raw_bytes_max:
            raise _damage(f"holds more than {raw_bytes_max} bytes")
        parts.append(part)
    if not source.eof:
        raise _damage("is cut short")
    if source.unused_data:
        raise _damage("is followed by other bytes")
    return b"".join(parts)


def _damage(what: str) -> SnapshotError:
    return SnapshotError(
        f"the zstd frame {what}",
        hint="the stored bytes are damaged or not steplog's; use an older snapshot or the log",
    )
