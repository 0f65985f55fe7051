"""Damage to snapshot files, from a seed: it may cost a snapshot, never give another state.

What a damaged store answers is compared with what was put. Faults are done to the files as a disk,
a bad copy or a careless hand does them; a few also rename the file to fit its altered bytes, as
only intent does. Eventsourcing and LangGraph fold altered bytes as truth.
"""

import os
import random
import shutil
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import pytest

from eventlog.canonical import encode
from eventlog.errors import SnapshotError
from snapshots.snapshot import Snapshot
from snapshots.snapshot_store import LocalSnapshotStore
from tests.support.scale import scaled
from tests.support.snapshots import file_of, make_snapshot, put_delta

SESSIONS = ("task/1", "task/2", "ü")


class Kept(NamedTuple):
    """A store, its files as put, and the states of each session's steps."""

    store: LocalSnapshotStore
    files: dict[Path, bytes]
    states: dict[tuple[str, int], Snapshot]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    """Three sessions of fulls and deltas; states share most of their bytes, as real ones do."""
    store = LocalSnapshotStore(tmp_path_factory.mktemp("faults") / "snapshots")
    files, states = {}, {}
    for session_id in SESSIONS:
        before = None
        for step in range(6):
            state = encode({"session": session_id, "done": list(range(step)), "text": "word " * 40})
            snapshot = make_snapshot(state, session_id=session_id, step=step)
            if before is None or step == 3:
                ref = store.put_snapshot(snapshot)
            else:
                ref = put_delta(store, snapshot, before)
            before = snapshot
            states[session_id, step] = snapshot
            path = file_of(store, ref)
            files[path] = path.read_bytes()
    return Kept(store, files, states)


def flip(path: Path, data: bytes, source: random.Random, _other: Path) -> None:
    path.write_bytes(flipped(data, source))


def flip_and_rename(path: Path, data: bytes, source: random.Random, _other: Path) -> None:
    changed = flipped(data, source)
    path.unlink()
    path.with_name(f"{path.name[:12]}-{sha256(changed).hexdigest()[:32]}.snap").write_bytes(changed)


def cut(path: Path, data: bytes, source: random.Random, _other: Path) -> None:
    os.truncate(path, source.randrange(len(data)))


def grow(path: Path, _data: bytes, source: random.Random, _other: Path) -> None:
    with path.open("ab") as file:
        file.write(source.randbytes(source.randint(1, 40)))


def drop_a_byte(path: Path, data: bytes, source: random.Random, _other: Path) -> None:
    place = source.randrange(len(data))
    path.write_bytes(data[:place] + data[place + 1 :])


def zero_a_block(path: Path, data: bytes, source: random.Random, _other: Path) -> None:
    place = source.randrange(len(data) - 16)
    path.write_bytes(data[:place] + bytes(16) + data[place + 16 :])


def delete(path: Path, _data: bytes, _source: random.Random, _other: Path) -> None:
    path.unlink()


def swap(path: Path, data: bytes, _source: random.Random, other: Path) -> None:
    path.write_bytes(other.read_bytes())
    other.write_bytes(data)


def take_the_name_of_another(path: Path, _data: bytes, _source: random.Random, other: Path) -> None:
    path.rename(other)


def move_to_another_session(path: Path, _data: bytes, _source: random.Random, other: Path) -> None:
    path.rename(other.with_name(path.name))


def claim_another_step(path: Path, _data: bytes, source: random.Random, _other: Path) -> None:
    path.rename(path.with_name(f"{source.randint(6, 99):012d}{path.name[12:]}"))


def leave_half(path: Path, data: bytes, source: random.Random, _other: Path) -> None:
    half = path.with_name(f".{path.name}.{source.randbytes(8).hex()}.tmp")
    half.write_bytes(data[: source.randrange(len(data))])
    path.unlink()


FAULTS: list[Callable[[Path, bytes, random.Random, Path], None]] = [
    flip,
    flip_and_rename,
    cut,
    grow,
    drop_a_byte,
    zero_a_block,
    delete,
    swap,
    take_the_name_of_another,
    move_to_another_session,
    claim_another_step,
    leave_half,
]
UNSEEN = {delete, leave_half}
"""What leaves no damaged file behind: unless a delta rested on it, the store is whole."""


def flipped(data: bytes, source: random.Random) -> bytes:
    changed = bytearray(data)
    changed[source.randrange(len(data))] ^= 1 << source.randrange(8)
    return bytes(changed)


def restore(kept: Kept) -> None:
    """Put every file back as it was."""
    shutil.rmtree(kept.store.folder)
    for path, data in kept.files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def read_everything(kept: Kept) -> int:
    """Read all that can be listed; compare it with what was put. How many were read."""
    read = 0
    unnamed = []
    reports: list[SnapshotError] = []
    refs = list(kept.store.list_snapshots(report=reports.append))
    for session_id in SESSIONS:
        refs += kept.store.nearest_snapshots(session_id, 100, report=reports.append)
    for ref in refs:
        try:
            found = kept.store.get_snapshot(ref)
        except SnapshotError as error:
            if ref.name not in error.message:
                unnamed.append(error)
            continue
        wanted = kept.states[found.session_id, found.step]
        assert (found.session_id, found.step) == (ref.session_id, ref.step)
        assert (found.state, found.state_digest) == (wanted.state, wanted.state_digest)
        read += 1
    assert unnamed == []
    return read


def test_the_store_is_sound_to_begin_with(kept: Kept) -> None:
    assert read_everything(kept) == 2 * len(kept.files)
    assert list(kept.store.find_damage()) == []


def test_no_fault_of_a_file_gives_another_state(kept: Kept) -> None:
    source = random.Random(20)
    paths = sorted(kept.files)
    for number in range(scaled(200, 1000)):
        fault = FAULTS[number % len(FAULTS)]
        path, other = source.sample(paths, 2)
        if fault is move_to_another_session:
            other = source.choice([each for each in paths if each.parent != path.parent])
        fault(path, kept.files[path], source, other)
        try:
            read = read_everything(kept)
            if fault not in UNSEEN and fault is not flip_and_rename:
                assert read < 2 * len(kept.files)
                assert list(kept.store.find_damage())
        except AssertionError as failure:
            raise AssertionError(f"fault {number}: {fault.__name__} of {path}") from failure
        finally:
            restore(kept)


def test_many_faults_at_once_give_no_other_state(kept: Kept) -> None:
    source = random.Random(21)
    paths = sorted(kept.files)
    for _ in range(scaled(10, 50)):
        for path in source.sample(paths, source.randint(2, len(paths))):
            if path.exists():
                flip(path, path.read_bytes() or b"\x00", source, path)
        read_everything(kept)
        restore(kept)
