"""Pickles read as plain data: hostile ones run nothing, build nothing, and are refused by name."""

import os
import pickle
import pickletools
import tracemalloc
from pathlib import Path
from random import Random
from typing import Any

import pytest

from eventlog.errors import CheckpointError
from snapshots.interchange.inert_pickle import Global, Inert, inert, read_pickle
from tests.support.scale import scaled

SIZE = Global("torch", "Size")
NAMES = {
    SIZE: lambda arguments: ("size", arguments),
    Global("torch", "float32"): None,
    Global("here", "Record"): inert("Record"),
}

PLAIN = [
    None,
    True,
    [1, -1, 255, 256, 65535, 65536, -(2**31), 2**31, 2**100, -(2**100)],
    [0.0, -0.0, 1.5, float("inf")],
    ["", "ä", "x" * 300, b"", b"\0\xff", b"y" * 300],
    {"a": {"b": ()}, 1: (1,), 2.5: (1, 2), None: (1, 2, 3), b"k": (1, 2, 3, 4)},
    [[], {}, [[[]]]],
]


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_plain_values_are_read(protocol: int) -> None:
    value: Any = PLAIN if protocol > 2 else PLAIN[:4]
    assert read_pickle(pickle.dumps(value, protocol), {}) == value
    shared = ["same", "same"] * 3
    assert read_pickle(pickle.dumps([shared, shared], protocol), {}) == [shared, shared]
    assert read_pickle(pickle.dumps(list(range(3000)), protocol), {}) == list(range(3000))


class Evil:
    def __init__(self, reduced: tuple[Any, ...]) -> None:
        self.reduced = reduced

    def __reduce__(self) -> tuple[Any, ...]:
        return self.reduced


def text(value: str) -> bytes:
    return b"\x8c" + bytes([len(value)]) + value.encode()


def named(module: str, name: str) -> bytes:
    return text(module) + text(name) + b"\x93"


MARKER = "made by a pickle"
HOSTILE = {
    "reduce": (pickle.dumps(Evil((os.mkdir, (MARKER,)))), "posix.mkdir"),
    "reduce, protocol 0": (pickle.dumps(Evil((os.mkdir, (MARKER,))), 0), "posix.mkdir"),
    "reduce, protocol 2": (pickle.dumps(Evil((os.mkdir, (MARKER,))), 2), "posix.mkdir"),
    "eval": (pickle.dumps(Evil((eval, (f"__import__('os').mkdir('{MARKER}')",)))), "builtins.eval"),
    "in a state": (
        pickle.dumps({"a": [Evil((exec, ("1",)))]}),
        "builtins.exec",
    ),
    "a subprocess": (b"\x80\x04" + named("subprocess", "Popen") + b".", "subprocess.Popen"),
    "getattr of what is allowed": (
        b"\x80\x04" + named("builtins", "getattr") + b".",
        "builtins.getattr",
    ),
    "dotted name": (b"\x80\x04" + named("torch", "Size.__init__") + b".", "torch.Size.__init__"),
    "dotted module": (b"\x80\x04" + named("torch.os", "system") + b".", "torch.os.system"),
    "line end in a name": (b"ctorch\nSize\r\n.", "torch.Size"),
    "dtype called": (b"\x80\x04" + named("torch", "float32") + b")R.", "calls 'torch.float32'"),
    "list called": (b"\x80\x04])R.", "calls 'list'"),
    "result called": (b"\x80\x04" + named("torch", "Size") + b")R)R.", "calls 'tuple'"),
    "arguments that are none": (b"\x80\x04" + named("torch", "Size") + b"]R.", "calls"),
    "name that is a list": (b"\x80\x04" + text("torch") + b"]\x93.", "no text"),
    "module that is a name": (
        b"\x80\x04" + named("torch", "float32") + text("x") + b"\x93.",
        "no text",
    ),
    "fields of a list": (b"\x80\x04]}b.", "fields of a list"),
    "fields of a name": (b"\x80\x04" + named("torch", "Size") + b"}b.", "fields of a Global"),
    "fields of a function's result": (
        b"\x80\x04" + named("torch", "Size") + b")R}b.",
        "fields of a tuple",
    ),
    "persistent id": (b"\x80\x04" + text("x") + b"\x85Q.", "outside of itself"),
    "persistent id, as a line": (b"Px\n.", "operation"),
    "extension code": (b"\x82\x01.", "operation"),
    "instance": (b"(iposix\nmkdir\n.", "operation"),
    "object": (b"(cposix\nmkdir\no.", "posix.mkdir"),
    "buffer": (b"\x80\x05\x97.", "operation"),
    "newobj_ex": (b"\x80\x04" + named("here", "Record") + b")}\x92.", "operation"),
    "dup": (b"\x80\x04]2.", "operation"),
    "long of 4 GiB": (b"\x80\x04\x8b\xff\xff\xff\x7f.", "operation"),
    "text of 4 GiB": (b"\x80\x04X\xff\xff\xff\xff.", "cut short"),
    "text of 16 EiB": (b"\x80\x04\x8d" + b"\xff" * 8 + b".", "operation"),
    "bytes of 4 GiB": (b"\x80\x04B\xff\xff\xff\xff.", "cut short"),
    "frame past the end": (b"\x80\x04\x95\xff", "cut short"),
    "memo of 4 billion": (b"\x80\x04]r\xff\xff\xff\xff.", "cut short"),
    "memo that is not there": (b"\x80\x04h\x07.", "cut short"),
    "key of a tuple": (b"\x80\x04})Ns.", "key of type tuple"),
    "key of a list": (b"\x80\x04}]Ns.", "key of type list"),
    "key without a value": (b"\x80\x04}(Nu.", "no dict"),
    "items into a text": (b"\x80\x04" + text("x") + b"Na.", "no list"),
    "keys into a list": (b"\x80\x04]NNs.", "no dict"),
    "stack below the mark": (b"\x80\x04](0.", "operation"),
    "pops what is not there": (b"\x80\x04a.", "cut short"),
    "no mark": (b"\x80\x04t.", "cut short"),
    "ends inside a mark": (b"\x80\x04(N.", "one value"),
    "ends with nothing": (b"\x80\x04.", "one value"),
    "ends with two": (b"\x80\x04NN.", "one value"),
    "never ends": (b"\x80\x04N", "cut short"),
    "empty": (b"", "cut short"),
    "newer protocol": (b"\x80\x06N.", "newer"),
    "text that is none": (b"\x80\x04\x8c\x01\xff.", "cut short"),
    "name without an end": (b"c" + b"x" * 5000 + b"\n", "cut short"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_pickles_are_refused(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, what = HOSTILE[case]
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointError, match=what.replace(".", r"\.")):
        read_pickle(data, NAMES)
    assert not os.listdir(tmp_path)


def test_the_same_bytes_run_in_pythons_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test bites: what is refused above does run there."""
    monkeypatch.chdir(tmp_path)
    for case in ("reduce", "reduce, protocol 0", "eval"):
        pickle.loads(HOSTILE[case][0])
        os.rmdir(MARKER)


def test_objects_are_data(monkeypatch: pytest.MonkeyPatch) -> None:
    state = b"}" + text("__class__") + text("x") + b"s"
    read = read_pickle(b"\x80\x04" + named("here", "Record") + b")\x81" + state + b"b.", NAMES)
    assert isinstance(read, Inert)
    assert type(read) is Inert
    assert (read.kind, read.fields) == ("Record", {"arguments": (), "__class__": "x"})
    read = read_pickle(b"\x80\x04" + named("here", "Record") + b")RNb.", NAMES)
    assert isinstance(read, Inert)
    assert read.fields["state"] is None
    assert read_pickle(b"ctorch\nfloat32\n.", NAMES) == Global("torch", "float32")


def test_pickles_that_hold_themselves_end() -> None:
    data = b"\x80\x04]\x94h\x00a."
    (inner,) = (read := read_pickle(data, {}))  # type: ignore[misc]
    assert inner is read


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("snapshots.interchange.inert_pickle.OBJECTS_MAX", 1000)
    for operation in (b"}", b"]", b"N\x85"):
        with pytest.raises(CheckpointError, match="more than 1000 objects"):
            read_pickle(b"\x80\x04" + operation * 1001 + b".", {})
    doubled = b"\x80\x04]\x94" + b"".join(
        b"(h" + bytes([n]) + b"h" + bytes([n]) + b"t\x94" for n in range(100)
    )
    tracemalloc.start()
    try:
        with pytest.raises(CheckpointError, match="one value"):
            read_pickle(doubled + b".", {})  # 2**100 items, were they written out
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_altered_pickles_are_refused_or_data() -> None:
    chance = Random(5)
    whole = pickle.dumps({"a": [1, 2.5, ("x", b"y")], "b": {1: None}}, 4)
    kinds = (dict, list, tuple, str, bytes, int, float, type(None), Global, Inert)
    for _ in range(scaled(3000, 30_000)):
        data = bytearray(whole)
        for _ in range(chance.randint(1, 4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        try:
            read = read_pickle(bytes(data), NAMES)
        except CheckpointError:
            continue
        assert isinstance(read, kinds)


def test_every_known_operation_is_one_of_pickles() -> None:
    from snapshots.interchange import inert_pickle

    known = {ord(one.code): one.name for one in pickletools.opcodes}
    names = {known[code] for code in inert_pickle._KNOWN}
    assert names.isdisjoint({"INST", "OBJ", "NEWOBJ_EX", "EXT1", "EXT2", "EXT4", "PERSID"})
