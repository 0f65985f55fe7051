"""The `set` of a manifest: every entry comes back as it was, and no other JSON passes for one."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.cut import Cut
from eventlog.errors import CheckpointError
from eventlog.merkle_root import MerkleRoot
from snapshots.checkpoints.set_entry import AdoptedFile, AdoptedFolder, SessionPosition, SetEntry

DIGEST = st.binary(min_size=32, max_size=32)
NAMES = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=60)
COUNTS = st.integers(0, 2**53)
POSITIONS = st.builds(SessionPosition, COUNTS, DIGEST, st.none() | DIGEST, st.none() | DIGEST)
FILES = st.builds(
    AdoptedFile,
    st.sampled_from(["a", "b/c.bin", ".metadata", "x..y"]),
    COUNTS,
    DIGEST.map(bytes.hex),
)


@st.composite
def entries(draw: st.DrawFn) -> SetEntry:
    ends = draw(st.dictionaries(st.integers(0, 99), st.integers(1, 2**40), max_size=4))
    leaves = st.lists(st.binary(max_size=8), max_size=20)
    adopted = st.builds(AdoptedFolder, NAMES, st.lists(FILES, max_size=3).map(tuple))
    return SetEntry(
        training=draw(NAMES),
        attempt=draw(COUNTS),
        step=draw(COUNTS),
        event_digest=draw(DIGEST),
        cut=Cut(ends),
        log={number: MerkleRoot(draw(leaves)) for number in Cut(ends).partitions()},
        sessions=draw(st.dictionaries(NAMES, POSITIONS, max_size=4)),
        policy=draw(st.none() | NAMES),
        previous=draw(st.none() | NAMES),
        adopted=draw(st.none() | adopted),
    )


def read_back(fields: object) -> SetEntry:
    return SetEntry.from_fields(json.loads(json.dumps(fields)))


@given(entries())
def test_an_entry_comes_back_as_it_was(entry: SetEntry) -> None:
    found = read_back(entry.to_fields())
    assert found._replace(log={}) == entry._replace(log={})
    assert {number: tree.stored() for number, tree in found.log.items()} == {
        number: tree.stored() for number, tree in entry.log.items()
    }


def valid() -> dict[str, Any]:
    entry = SetEntry(
        "run-1",
        2,
        7,
        bytes(32),
        Cut({0: 9}),
        {0: MerkleRoot([b"a", b"b", b"c"])},
        {"s": SessionPosition(3, bytes(32))},
    )
    return json.loads(json.dumps(entry.to_fields()))  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("training",), ""),
        (("training",), "a\nb"),
        (("attempt",), -1),
        (("attempt",), True),
        (("step",), 1.0),
        (("event",), "00"),
        (("event",), "G" * 64),
        (("cut",), {"0": 0}),
        (("cut",), {"00": 9}),
        (("cut",), {"-1": 9}),
        (("cut",), {"0": "9"}),
        (("cut",), {"1": 9}),
        (("cut",), {"9" * 30: 9}),
        (("log", "0", "size"), 4),
        (("log", "0", "root"), "0" * 64),
        (("log", "0", "peaks"), "zz"),
        (("log", "0"), None),
        (("sessions", "s", "step"), -1),
        (("sessions", "s", "event"), None),
        (("sessions", "s", "state"), "0"),
        (("sessions", "s", "more"), 1),
        (("sessions", "\x00"), {"step": 1, "event": "0" * 64}),
        (("sessions",), []),
        (("policy",), 3),
        (("previous",), []),
        (("adopted",), {"folder": "/x", "files": [{"path": "../x", "bytes": 1}]}),
        (("adopted",), {"folder": "/x", "files": [{"path": "/x", "bytes": 1, "sha256": "0" * 64}]}),
        (
            ("adopted",),
            {"folder": "/x", "files": [{"path": "a/../b", "bytes": 1, "sha256": "0" * 64}]},
        ),
        (("unknown",), 1),
    ],
)
def test_what_is_no_entry_is_refused(path: tuple[str, ...], value: object) -> None:
    fields = valid()
    place = fields
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(CheckpointError, match="manifest cannot be used"):
        SetEntry.from_fields(fields)


def test_the_unchanged_one_is_read() -> None:
    assert SetEntry.from_fields(valid()).training == "run-1"
