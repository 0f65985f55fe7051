"""The local snapshot store on a real folder: damage, strangers, links, places out of reach."""

import errno
import os
import resource
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from eventlog.errors import LogUnavailableError, SnapshotError
from snapshots.snapshot import decode_record, encode_record, encode_snapshot
from snapshots.snapshot_store import CHAIN_MAX, LocalSnapshotStore, SnapshotRef
from tests.support.snapshots import file_of, make_snapshot, put_bytes, put_delta

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def store(tmp_path: Path) -> LocalSnapshotStore:
    return LocalSnapshotStore(tmp_path / "snapshots")


def found(store: LocalSnapshotStore, session_id: str | None = None) -> tuple[list[int], list[str]]:
    """The steps listed, and what was reported."""
    reports: list[SnapshotError] = []
    steps = [ref.step for ref in store.list_snapshots(session_id, report=reports.append)]
    return steps, [error.message for error in reports]


def test_a_snapshot_lies_where_the_format_says(store: LocalSnapshotStore) -> None:
    ref = store.put_snapshot(make_snapshot(step=412))
    path = file_of(store, ref)
    assert path == store.path_of(ref)
    data = path.read_bytes()
    assert data == encode_snapshot(make_snapshot(step=412))
    assert path.name == f"000000000412-{sha256(data).hexdigest()[:32]}.snap"
    assert ref.stored_bytes == len(data)
    assert [each for each in store.folder.rglob("*") if each.is_file()] == [path]


def test_opening_and_listing_makes_no_folder(store: LocalSnapshotStore) -> None:
    assert found(store) == ([], [])
    assert list(store.nearest_snapshots("task/1", 5)) == []
    assert not store.folder.exists()


@pytest.mark.parametrize(
    "damage", ["flip", "cut", "grown", "empty", "gone", "folder", "link", "pipe", "huge"]
)
def test_damage_is_found_and_named(store: LocalSnapshotStore, damage: str, tmp_path: Path) -> None:
    ref = store.put_snapshot(make_snapshot(bytes(range(200)), step=3))
    path = file_of(store, ref)
    data = bytearray(path.read_bytes())
    path.unlink()
    if damage == "flip":
        data[100] ^= 4
    elif damage == "cut":
        del data[-1:]
    elif damage == "grown":
        data += b"\x00"
    elif damage == "empty":
        data.clear()
    if damage == "folder":
        path.mkdir()
    elif damage == "link":
        (tmp_path / "elsewhere").write_bytes(data)
        path.symlink_to(tmp_path / "elsewhere")
    elif damage == "pipe":
        os.mkfifo(path)
    elif damage != "gone":
        path.write_bytes(data)
    if damage == "huge":
        os.truncate(path, 1 << 40)
    with pytest.raises(SnapshotError, match=ref.name) as caught:
        store.get_snapshot(ref)
    assert str(path) in caught.value.message
    if damage == "gone":
        assert list(store.find_damage()) == []
    else:
        assert [str(path) in error.message for error in store.find_damage()].count(True) == 1


def test_putting_again_mends_a_damaged_snapshot(store: LocalSnapshotStore) -> None:
    ref = store.put_snapshot(make_snapshot())
    file_of(store, ref).write_bytes(b"wrong bytes")
    assert store.put_snapshot(make_snapshot()) == ref
    assert store.get_snapshot(ref) == make_snapshot()


def test_a_file_of_another_step_or_session_is_refused_under_this_name(
    store: LocalSnapshotStore,
) -> None:
    """Right bytes in the wrong place: renamed to another step, moved to another session."""
    ref = store.put_snapshot(make_snapshot(step=3))
    data = file_of(store, ref).read_bytes()
    elsewhere = [
        put_bytes(store, make_snapshot(step=4), data),
        put_bytes(store, make_snapshot(step=3, session_id="other"), data),
    ]
    for wrong in elsewhere:
        with pytest.raises(SnapshotError, match="it is of session 'task/1', step 3"):
            store.get_snapshot(wrong)
    assert store.get_snapshot(ref) == make_snapshot(step=3)
    assert len(list(store.find_damage("task/1"))) == 1
    # Of the other folder no file says whose it is, so it cannot be listed by session.
    steps, reports = found(store)
    assert steps == [3, 4]
    assert any("another one's folder" in each for each in reports)


def test_strangers_are_reported_and_passed_over(store: LocalSnapshotStore) -> None:
    ref = store.put_snapshot(make_snapshot(step=3))
    folder = file_of(store, ref).parent
    strangers = [
        folder / "note.txt",
        folder / ref.name.upper(),
        folder / ref.name.replace(".snap", ".snap.bak"),
        folder / "3-00.snap",
        folder.parent / "readme",
        store.folder / "lost+found",
    ]
    for path in strangers:
        path.write_bytes(b"?")
    (store.folder / "zz").mkdir()
    (folder / "sub").mkdir()
    steps, reports = found(store)
    assert steps == [3]
    for path in [*strangers, store.folder / "zz", folder / "sub"]:
        assert sum(str(path) + ":" in each for each in reports) == 1, path
    assert [each.step for each in store.nearest_snapshots("task/1", 9)] == [3]


def test_half_written_files_are_never_snapshots(store: LocalSnapshotStore) -> None:
    """Another process may be writing one right now, so they are no damage either."""
    ref = store.put_snapshot(make_snapshot(step=3))
    path = file_of(store, ref)
    half = path.with_name(f".{path.name}.0011223344556677.tmp")
    half.write_bytes(path.read_bytes()[:50])
    assert found(store) == ([3], [])
    assert list(store.find_damage()) == []


def test_an_empty_folder_or_one_without_an_owner_is_reported(store: LocalSnapshotStore) -> None:
    good = store.put_snapshot(make_snapshot())
    lost = store.put_snapshot(make_snapshot(session_id="lost"))
    file_of(store, lost).write_bytes(b"no snapshot")
    steps, reports = found(store)
    assert steps == [good.step]
    assert len(reports) == 2
    assert str(file_of(store, lost)) in reports[0]
    assert "whose snapshots" in reports[1]


def test_the_owner_is_found_in_any_sound_file(store: LocalSnapshotStore) -> None:
    first = store.put_snapshot(make_snapshot(step=1))
    store.put_snapshot(make_snapshot(step=2))
    file_of(store, first).write_bytes(b"")
    steps, reports = found(store)
    assert (steps, reports) == ([1, 2], [])  # a listing does not read each file
    assert [str(file_of(store, first)) in e.message for e in store.find_damage()] == [True]


@pytest.mark.parametrize("level", ["session", "fan"])
def test_nothing_is_reached_through_a_linked_folder(
    store: LocalSnapshotStore, tmp_path: Path, level: str
) -> None:
    ref = store.put_snapshot(make_snapshot())
    folder = file_of(store, ref).parent
    linked = folder if level == "session" else folder.parent
    shutil.move(linked, tmp_path / "moved")
    linked.symlink_to(tmp_path / "moved")
    for act in (
        lambda: store.get_snapshot(ref),
        lambda: store.put_snapshot(make_snapshot(step=1)),
    ):
        with pytest.raises(SnapshotError, match=linked.name):
            act()
    assert list(store.nearest_snapshots("task/1", 5)) == []
    steps, reports = found(store)
    assert (steps, len(reports)) == ([], 1)


def test_the_folder_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "big disk").mkdir()
    (tmp_path / "snapshots").symlink_to(tmp_path / "big disk")
    store = LocalSnapshotStore(tmp_path / "snapshots")
    ref = store.put_snapshot(make_snapshot())
    assert store.get_snapshot(ref) == make_snapshot()
    assert [each.step for each in store.list_snapshots()] == [0]


@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_file_where_a_folder_should_be_is_named(store: LocalSnapshotStore, level: int) -> None:
    path = store.path_of(SnapshotRef("task/1", 0, "0" * 12 + "-" + "0" * 32 + ".snap", 0))
    blocked = [path.parent, path.parent.parent, store.folder][level]
    blocked.parent.mkdir(parents=True, exist_ok=True)
    blocked.write_text("a file")
    with pytest.raises(SnapshotError, match=blocked.name):
        store.put_snapshot(make_snapshot())
    steps, reports = found(store)
    assert (steps, len(reports)) == ([], 1)
    assert len(found(store, "task/1")[1]) == 1


# Deltas: read by every reader of version 1; when to write them is a later policy's to say.


def chain(store: LocalSnapshotStore, deltas: int) -> list[SnapshotRef]:
    """One full snapshot and so many deltas, each against the one before."""
    before = make_snapshot(b"\x00" * 500)
    refs = [store.put_snapshot(before)]
    for step in range(1, deltas + 1):
        after = make_snapshot(before.state + step.to_bytes(2, "big"), step=step)
        refs.append(put_delta(store, after, before))
        before = after
    return refs


def test_a_chain_of_deltas_is_read_up_to_its_bound(store: LocalSnapshotStore) -> None:
    refs = chain(store, CHAIN_MAX + 1)
    for ref in refs[:-1]:
        snapshot = store.get_snapshot(ref)
        assert snapshot.step == ref.step
        assert sha256(snapshot.state).digest() == snapshot.state_digest
        assert len(snapshot.state) == 500 + 2 * ref.step
    with pytest.raises(SnapshotError, match=r"cannot be used.*more than 16 deltas"):
        store.get_snapshot(refs[-1])


@pytest.mark.parametrize("damage", ["gone", "flip"])
def test_a_damaged_base_spoils_what_rests_on_it_and_nothing_else(
    store: LocalSnapshotStore, damage: str
) -> None:
    refs = chain(store, 4)
    path = file_of(store, refs[2])
    data = bytearray(path.read_bytes())
    data[60] ^= 1
    path.unlink()
    if damage == "flip":
        path.write_bytes(data)
    for ref in refs[:2]:
        assert store.get_snapshot(ref).step == ref.step
    for ref in refs[3:]:
        with pytest.raises(SnapshotError, match="base of step") as caught:
            store.get_snapshot(ref)
        assert str(file_of(store, ref)) in caught.value.message
        assert caught.value.step == ref.step


def test_any_sound_snapshot_of_the_base_serves(store: LocalSnapshotStore) -> None:
    """The base is named by step and digest, not by file: a full copy heals a broken chain."""
    refs = chain(store, 3)
    base = store.get_snapshot(refs[2])
    file_of(store, refs[2]).write_bytes(b"")
    with pytest.raises(SnapshotError, match="base of step 2"):
        store.get_snapshot(refs[3])
    store.put_snapshot(base)
    assert store.get_snapshot(refs[3]).step == 3


def test_a_base_of_the_right_step_and_another_state_is_not_used(store: LocalSnapshotStore) -> None:
    refs = chain(store, 2)
    file_of(store, refs[1]).unlink()
    store.put_snapshot(make_snapshot(b"\x01" * 501, step=1))
    with pytest.raises(SnapshotError, match="base of step 1 cannot be used: there is none"):
        store.get_snapshot(refs[2])


def test_a_base_that_lies_about_its_digest_is_not_used(store: LocalSnapshotStore) -> None:
    refs = chain(store, 2)
    file_of(store, refs[1]).unlink()
    wanted = decode_record(file_of(store, refs[2]).read_bytes()).base
    false = decode_record(encode_snapshot(make_snapshot(b"\x01" * 501, step=1)))
    put_bytes(
        store, make_snapshot(step=1), encode_record(false._replace(state_digest=wanted or b""))
    )
    with pytest.raises(SnapshotError, match="has the digest"):
        store.get_snapshot(refs[2])


# Places that cannot be written.


@pytest.fixture
def file_size_limit() -> Iterator[int]:
    """A limit on file size for this process: a write beyond it fails, also for root."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    limit = 64 * 1024
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    yield limit
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_write_that_fails_in_the_middle_keeps_nothing(
    store: LocalSnapshotStore, file_size_limit: int
) -> None:
    large = make_snapshot(
        b"".join(sha256(bytes([n, m])).digest() for n in range(256) for m in range(16))
    )
    assert len(encode_snapshot(large)) > file_size_limit
    with pytest.raises(LogUnavailableError, match="ulimit") as caught:
        store.put_snapshot(large)
    assert str(store.folder) in caught.value.message
    assert [path for path in store.folder.rglob("*") if path.is_file()] == []
    small = store.put_snapshot(make_snapshot())
    assert store.get_snapshot(small) == make_snapshot()


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EIO])
@pytest.mark.parametrize("call", ["write", "fsync", "replace", "mkdir"])
def test_every_failing_write_is_our_error_naming_the_place(
    store: LocalSnapshotStore, monkeypatch: pytest.MonkeyPatch, code: int, call: str
) -> None:
    def failing(*_args: object, **_options: object) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, failing)
        with pytest.raises(LogUnavailableError, match=os.strerror(code)) as caught:
            store.put_snapshot(make_snapshot())
    assert str(store.folder) in caught.value.message
    assert caught.value.retryable
    assert found(store) == ([], []) or call == "fsync"
    ref = store.put_snapshot(make_snapshot())
    assert store.get_snapshot(ref) == make_snapshot()


@pytest.mark.skipif(os.geteuid() == 0, reason="root passes every permission check")
def test_a_folder_without_permission_is_named(store: LocalSnapshotStore) -> None:
    ref = store.put_snapshot(make_snapshot())
    folder = file_of(store, ref).parent
    folder.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        with pytest.raises(LogUnavailableError, match="permission"):
            store.put_snapshot(make_snapshot(step=1))
        folder.chmod(0)
        assert len(found(store, "task/1")[1]) == 1
    finally:
        folder.chmod(stat.S_IRWXU)


def test_what_cannot_be_listed_or_read_is_reported(
    store: LocalSnapshotStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that fails while reading costs time (an older snapshot, the log), no more."""
    ref = store.put_snapshot(make_snapshot())

    def failing(*_args: object, **_options: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", failing)
        with pytest.raises(SnapshotError, match="Input/output error"):
            store.get_snapshot(ref)
    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", failing)
        steps, reports = found(store, "task/1")
    assert steps == []
    assert len(reports) == 1
    assert "Input/output error" in reports[0]


_WRITER = """
import sys
from snapshots.snapshot_store import LocalSnapshotStore
from tests.support.snapshots import make_snapshot
store = LocalSnapshotStore(sys.argv[1])
sys.stdin.readline()
for step in range(int(sys.argv[2])):
    ref = store.put_snapshot(make_snapshot(step.to_bytes(2, "big") * 3000, step=step))
    print(ref.name, flush=True)
"""


def writer(store: LocalSnapshotStore, steps: int) -> "subprocess.Popen[str]":
    """A process that waits for a line, then puts a snapshot for each step and says its name."""
    return subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(store.folder), str(steps)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_processes_may_put_the_same_snapshots_at_once(store: LocalSnapshotStore) -> None:
    writers = [writer(store, 60) for _ in range(3)]
    for each in writers:
        assert each.stdin is not None
        each.stdin.write("go\n")
        each.stdin.flush()
    names = [each.communicate()[0].split() for each in writers]
    assert [each.returncode for each in writers] == [0, 0, 0]
    assert names[0] == names[1] == names[2]
    assert found(store) == (list(range(60)), [])
    assert list(store.find_damage()) == []
    assert len([path for path in store.folder.rglob("*") if path.is_file()]) == 60
