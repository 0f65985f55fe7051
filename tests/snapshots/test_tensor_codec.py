"""Parts of tensors: every byte comes back, gains are what they should be, damage is found."""

import random
import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.errors import CheckpointError
from snapshots import tensor_codec
from snapshots.sparse_items import SparseItems, change_items, find_items, gaps_bytes_max
from snapshots.tensor_codec import (
    BLOCK_BYTES,
    PART_BYTES_MAX,
    Encoding,
    decode_part,
    encode_part,
)

RANDOM = random.Random(5)
NOISE = RANDOM.randbytes(3 * BLOCK_BYTES // 2)
WEIGHTS = struct.pack("<100000f", *(RANDOM.gauss(0, 0.02) for _ in range(100_000)))
SPARSE = bytearray(len(WEIGHTS))
for _place in RANDOM.sample(range(len(SPARSE)), 300):
    SPARSE[_place] = 1
SAMPLES = [b"", bytes(16), NOISE[:48], NOISE, WEIGHTS, bytes(SPARSE)]
CHANGED = bytes(left ^ right for left, right in zip(WEIGHTS, SPARSE, strict=True))


def there_and_back(raw: bytes, item_bytes: int, base: bytes | None = None) -> tuple[Encoding, int]:
    encoding, pieces = encode_part(raw, item_bytes=item_bytes, base=base)
    data = b"".join(pieces)
    used = base if encoding.needs_base else None
    back = decode_part(data, encoding, raw_bytes=len(raw), item_bytes=item_bytes, base=used)
    assert bytes(back) == raw
    return encoding, len(data)


def stored(raw: bytes, item_bytes: int, base: bytes | None = None) -> bytes:
    return b"".join(encode_part(raw, item_bytes=item_bytes, base=base).pieces)


@pytest.fixture(params=["numpy", "without numpy"])
def _either(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "without numpy":
        monkeypatch.setattr(tensor_codec, "_numpy", lambda: None)


@pytest.mark.usefixtures("_either")
@pytest.mark.parametrize("item_bytes", [1, 2, 4, 8, 16])
@pytest.mark.parametrize(
    "raw", [b"", bytes(16), NOISE[:48], NOISE, WEIGHTS, bytes(SPARSE)], ids=len
)
def test_every_byte_comes_back(raw: bytes, item_bytes: int) -> None:
    encoding, size = there_and_back(raw, item_bytes)
    assert not encoding.needs_base
    assert size <= len(raw) + len(raw) // 1000 + 64


@pytest.mark.usefixtures("_either")
@pytest.mark.parametrize("item_bytes", [1, 2, 4, 8])
def test_a_difference_comes_back(item_bytes: int) -> None:
    encoding, size = there_and_back(CHANGED, item_bytes, WEIGHTS)
    assert encoding.needs_base
    assert size < len(CHANGED) / 100
    there_and_back(NOISE, item_bytes, bytes(reversed(NOISE)))
    there_and_back(NOISE[:16], item_bytes, bytes(16))


@pytest.mark.usefixtures("_either")
@pytest.mark.parametrize("width", [1, 2, 4, 8])
@pytest.mark.parametrize("apart", [1, 2, 254, 255, 256, 257, 510, 511, 20_000])
def test_changed_numbers_come_back_at_every_distance(width: int, apart: int) -> None:
    among = 60_000
    data = bytearray(among * width)
    for place in (*range(apart - 1, among, apart), among - 1):
        data[place * width + place % width] = place % 255 + 1
    found = find_items(bytes(data), width, tensor_codec._numpy())
    assert len(found.gaps) <= gaps_bytes_max(found.changed, among)
    into = bytearray(among * width)
    assert change_items(into, found, width, tensor_codec._numpy())
    assert into == data
    there_and_back(bytes(data), width, bytes(len(data)))


@pytest.mark.usefixtures("_either")
@pytest.mark.parametrize(
    ("changed", "gaps"),
    [(1, b"\x05"), (1, b"\xff\x00"), (2, b"\x00"), (1, b"\xff"), (2, b"\x00\x04")],
)
def test_changes_that_do_not_fit_change_nothing(changed: int, gaps: bytes) -> None:
    into = bytearray(5)
    found = SparseItems(changed, gaps, b"\1" * changed)
    assert not change_items(into, found, 1, tensor_codec._numpy())
    assert into == bytes(5)


def test_with_and_without_numpy_the_bytes_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    for item_bytes in (2, 4, 16):
        fast = stored(WEIGHTS, item_bytes, CHANGED)
        planes = stored(WEIGHTS, item_bytes)
        with monkeypatch.context() as patch:
            patch.setattr(tensor_codec, "_numpy", lambda: None)
            assert stored(WEIGHTS, item_bytes, CHANGED) == fast
            assert stored(WEIGHTS, item_bytes) == planes


def test_dense_weights_shrink_as_the_research_says() -> None:
    encoding, size = there_and_back(WEIGHTS, 4)
    assert encoding is Encoding.PLANES
    assert len(WEIGHTS) / size > 1.18
    brain = b"".join(WEIGHTS[at + 2 : at + 4] for at in range(0, len(WEIGHTS), 4))
    encoding, size = there_and_back(brain, 2)
    assert encoding is Encoding.PLANES
    assert len(brain) / size > 1.45


def test_noise_is_kept_raw() -> None:
    assert there_and_back(NOISE, 4) == (Encoding.RAW, len(NOISE))
    assert there_and_back(NOISE, 4, bytes(reversed(NOISE)))[0] is Encoding.RAW


def test_a_difference_is_taken_only_where_it_is_smaller() -> None:
    assert there_and_back(bytes(BLOCK_BYTES), 4, NOISE[:BLOCK_BYTES])[0] is Encoding.ZSTD


@given(st.binary(max_size=400), st.sampled_from([1, 2, 4, 8, 16]), st.randoms())
def test_any_bytes_come_back(data: bytes, item_bytes: int, chance: random.Random) -> None:
    raw = data[: len(data) // item_bytes * item_bytes]
    there_and_back(raw, item_bytes)
    there_and_back(raw, item_bytes, chance.randbytes(len(raw)))


@pytest.mark.parametrize(
    ("raw", "base"),
    [
        (WEIGHTS, None),
        (bytes(SPARSE), None),
        (CHANGED, WEIGHTS),
        (bytes(reversed(WEIGHTS)), WEIGHTS),
        (struct.pack("<100000f", *range(100_000)), struct.pack("<100000f", *range(1, 100_001))),
    ],
)
def test_damage_never_escapes_as_anything_else(raw: bytes, base: bytes | None) -> None:
    encoding, pieces = encode_part(raw, item_bytes=4, base=base)
    data = b"".join(pieces)
    chance = random.Random(1)
    for _ in range(300):
        altered = bytearray(data)
        altered[chance.randrange(len(altered))] ^= 1 << chance.randrange(8)
        cut = bytes(altered[: chance.choice([len(altered), chance.randrange(len(altered))])])
        # What decodes all the same is found by the hash, which is the caller's.
        with suppress(CheckpointError):
            decode_part(cut, encoding, raw_bytes=len(raw), item_bytes=4, base=base)
    for wrong in (data[:-1], data + b"\0", b""):
        with pytest.raises(CheckpointError):
            decode_part(wrong, encoding, raw_bytes=len(raw), item_bytes=4, base=base)


def test_what_is_asked_for_wrongly_is_refused() -> None:
    with pytest.raises(ValueError, match="no whole number"):
        encode_part(b"abc", item_bytes=2)
    with pytest.raises(ValueError, match="the base has 2 bytes"):
        encode_part(b"abcd", item_bytes=2, base=b"ab")
    with pytest.raises(CheckpointError, match="needs a base"):
        decode_part(b"", Encoding.XOR, raw_bytes=4, item_bytes=4)
    with pytest.raises(CheckpointError, match="at most"):
        decode_part(b"", Encoding.ZSTD, raw_bytes=PART_BYTES_MAX + 4, item_bytes=4)
    with pytest.raises(CheckpointError, match="holds 3 bytes; 4 are expected"):
        decode_part(b"abc", Encoding.RAW, raw_bytes=4, item_bytes=4)
