"""The format safetensors: round trips, the package's own reader and writer, altered headers."""

import json
from pathlib import Path
from random import Random

import pytest

from eventlog.errors import CheckpointError
from snapshots.interchange.safetensors_file import DTYPES, HEADER_BYTES_MAX, lay_out, parse_header
from tests.support.safetensors_files import random_tensors, read_file, write_file
from tests.support.scale import scaled

SHAPES = ((3, 5), (), (0, 4), (7,), (2, 1, 3))


def header_of(data: bytes) -> tuple[bytes, bytes]:
    end = 8 + int.from_bytes(data[:8], "little")
    return data[8:end], data[end:]


def test_what_was_written_is_read(tmp_path: Path) -> None:
    tensors = random_tensors(Random(1), *SHAPES)
    write_file(tmp_path / "a", tensors, {"format": "pt", "ä": "ü"})
    assert read_file(tmp_path / "a") == tensors
    write_file(tmp_path / "b", dict(reversed(tensors.items())), {"ä": "ü", "format": "pt"})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    header, _data = header_of((tmp_path / "a").read_bytes())
    assert len(header) % 8 == 0


def test_a_file_of_nothing(tmp_path: Path) -> None:
    write_file(tmp_path / "a", {})
    assert read_file(tmp_path / "a") == {}


def test_the_package_reads_what_we_write(tmp_path: Path) -> None:
    package = pytest.importorskip(
        "safetensors", reason="safetensors is not installed: not compared"
    )
    tensors = random_tensors(Random(2), *SHAPES)
    write_file(tmp_path / "a", tensors, {"format": "pt"})
    found = dict(package.deserialize((tmp_path / "a").read_bytes()))
    assert found.keys() == tensors.keys()
    for name, (dtype, shape, data) in tensors.items():
        assert DTYPES[found[name]["dtype"]] == dtype
        assert tuple(found[name]["shape"]) == shape
        assert bytes(found[name]["data"]) == data


def test_we_read_what_the_package_writes_and_write_the_same_bytes(tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    pytest.importorskip("safetensors", reason="safetensors is not installed: not compared")
    from safetensors.numpy import save_file

    arrays = {
        f"t{number}": numpy.frombuffer(Random(number).randbytes(48), kind).reshape(2, -1)
        for number, kind in enumerate(("u1", "i2", "f2", "f4", "f8", "i8", "u4", "u8", "c8"))
    }
    save_file(arrays, tmp_path / "a", {"format": "np"})
    found = read_file(tmp_path / "a")
    assert {name: one[2] for name, one in found.items()} == {
        name: one.tobytes() for name, one in arrays.items()
    }
    write_file(tmp_path / "b", found, {"format": "np"})
    assert (tmp_path / "b").read_bytes() == (tmp_path / "a").read_bytes()


def test_altered_files_are_refused_or_hold_the_same_tensors(tmp_path: Path) -> None:
    """Never another tensor's bytes under a name: every place is used exactly once."""
    package = pytest.importorskip(
        "safetensors", reason="safetensors is not installed: not compared"
    )
    chance = Random(3)
    tensors = random_tensors(chance, (2, 2), (3,), ())
    path = tmp_path / "a"
    write_file(path, tensors, {"format": "pt"})
    whole = path.read_bytes()
    front = 8 + int.from_bytes(whole[:8], "little")
    refused = 0
    for _ in range(scaled(3_000, 15_000)):
        data = bytearray(whole)
        for _ in range(chance.randint(1, 3)):
            at = chance.randrange(front)
            match chance.randrange(4):
                case 0:
                    data[at] ^= 1 << chance.randrange(8)
                case 1:
                    data[at] = chance.choice(b'0123456789[]{}",:')
                case 2:
                    del data[at]
                case 3:
                    data = data[: chance.randrange(len(data))]
            if len(data) < front:
                break
        path.write_bytes(data)
        told = ""
        try:
            found = read_file(path)
        except CheckpointError as error:
            told = error.message
            found = None
        if found is None:
            refused += 1
            assert str(path) in told
            continue
        # What we take the format's own reader takes too, and finds the same.
        theirs = dict(package.deserialize(bytes(data)))
        assert {name: (one[1], one[2]) for name, one in found.items()} == {
            name: (tuple(one["shape"]), bytes(one["data"])) for name, one in theirs.items()
        }
    assert refused > 500


def header(**tensors: object) -> bytes:
    return json.dumps(tensors).encode()


def place(start: int, end: int, dtype: str = "U8", shape: object = None) -> dict[str, object]:
    shape = [end - start] if shape is None else shape
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


@pytest.mark.parametrize(
    ("front", "data_bytes", "what"),
    [
        (header(a=place(0, 4), b=place(2, 6)), 6, "'b' overlaps another"),
        (header(a=place(0, 4), b=place(5, 6)), 6, "'b' leaves a gap before it"),
        (header(a=place(1, 4)), 4, "'a' leaves a gap"),
        (header(a=place(0, 4)), 5, "take 4 bytes and its data 5"),
        (header(a=place(0, 4)), 3, "take 4 bytes and its data 3"),
        (header(a=place(0, 4, "F32", [2])), 4, "do not fit"),
        (header(a=place(4, 0, "U8", [0])), 4, "do not fit"),
        (header(a=place(0, 4, "F4", [8])), 4, "dtype 'F4', which is not kept"),
        (header(a=place(0, 4, ["U8"])), 4, "which is not kept"),  # type: ignore[arg-type]
        (header(a=place(0, 4, "U8", [2.0, 2])), 4, "no count"),
        (header(a=place(0, 1, "U8", [True])), 1, "no count"),
        (header(a=place(0, 1, "U8", [-1])), 1, "no count"),
        (header(a=place(0, 1, "U8", [1] * 65)), 1, "no fit shape"),
        (header(a=place(0, 0, "U8", [1 << 62, 0, 1 << 62])), 0, ""),
        (header(a={**place(0, 4), "more": 1}), 4, "wrong fields"),
        (header(a=[0]), 4, "wrong fields"),
        (header(__metadata__={"a": 1}), 0, "metadata are not texts"),
        (header(__metadata__=[]), 0, "metadata are not texts"),
        (b'{"a":1,"a":2}', 0, "twice"),
        (b'{"\\ud800":1}', 0, "not JSON"),
        (b'{"a":NaN}', 0, "NaN"),
        (b" {}", 0, "no header"),
        (b"[]", 0, "no header"),
        (b'{"a":' + b"[" * 100_000, 0, "not JSON"),
        (b'{"a":' + b"1" * 100_000 + b"}", 0, "not JSON"),
        (b"{\xff}", 0, "not JSON"),
    ],
)
def test_headers_that_are_no_whole_are_refused(front: bytes, data_bytes: int, what: str) -> None:
    if not what:
        assert parse_header(front, data_bytes, Path("f")).data_bytes == 0
        return
    with pytest.raises(CheckpointError, match=what):
        parse_header(front, data_bytes, Path("f"))


def test_lengths_that_lie_are_refused_before_anything_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a"
    for data in (b"", b"1234567", b"\xff" * 8, (3).to_bytes(8, "little") + b"{}"):
        path.write_bytes(data)
        with pytest.raises(CheckpointError, match="ends outside of it"):
            read_file(path)
    with open(path, "wb") as file:
        file.write((HEADER_BYTES_MAX + 1).to_bytes(8, "little"))
        file.truncate(HEADER_BYTES_MAX + 100)
    from snapshots.interchange.safetensors_file import read_header

    with open(path, "rb", buffering=0) as raw, pytest.raises(CheckpointError, match="at most"):
        read_header(raw, HEADER_BYTES_MAX + 100, path)


def test_what_the_format_cannot_hold_is_refused_by_name() -> None:
    for dtype in ("complex128", "complex32"):
        with pytest.raises(CheckpointError, match=f"'a.b' is of dtype {dtype}") as caught:
            lay_out({"a.b": (dtype, (1,))}, {})
        assert caught.value.tensor == "a.b"
    with pytest.raises(CheckpointError, match="__metadata__"):
        lay_out({"__metadata__": ("uint8", ())}, {})
