"""What every snapshot store must do. A store plugs in by an entry in `STORES`."""

import pickle
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest

from eventlog.errors import SnapshotError
from snapshots.snapshot_store import LocalSnapshotStore, SnapshotRef, SnapshotStore
from tests.support.snapshots import make_snapshot

STORES: dict[str, Callable[[Path], SnapshotStore]] = {
    "local": lambda folder: LocalSnapshotStore(folder / "snapshots"),
}

IDS = ["a", "../../etc/passwd", "/", "..", "x" * 255, "日本語/7", "A", "a ", "CON", "a.snap", "~2"]


@pytest.fixture(params=sorted(STORES))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> SnapshotStore:
    return STORES[request.param](tmp_path)


@pytest.mark.parametrize("state", [b"\xc0", b"\xc6" + bytes(70_000), bytes(range(256)) * 9_000])
def test_what_was_put_comes_back_whole(store: SnapshotStore, state: bytes) -> None:
    snapshot = make_snapshot(state, step=12)
    ref = store.put_snapshot(snapshot)
    assert (ref.session_id, ref.step) == ("task/1", 12)
    assert store.get_snapshot(ref) == snapshot
    assert list(store.list_snapshots()) == list(store.list_snapshots("task/1")) == [ref]


def test_putting_again_keeps_one(store: SnapshotStore) -> None:
    snapshot = make_snapshot()
    assert store.put_snapshot(snapshot) == store.put_snapshot(snapshot)
    assert len(list(store.list_snapshots())) == 1


def test_an_empty_store_has_nothing(store: SnapshotStore) -> None:
    assert list(store.list_snapshots()) == []
    assert list(store.list_snapshots("task/1")) == []
    assert list(store.nearest_snapshots("task/1", 10)) == []
    assert list(store.find_damage()) == []


def test_the_nearest_come_newest_first_and_never_above_the_step(store: SnapshotStore) -> None:
    for step in (4, 0, 9, 100, 12):
        store.put_snapshot(make_snapshot(step=step))
        store.put_snapshot(make_snapshot(step=step, session_id="other"))

    def steps(at: int) -> list[int]:
        refs = list(store.nearest_snapshots("task/1", at))
        assert {ref.session_id for ref in refs} <= {"task/1"}
        return [ref.step for ref in refs]

    assert steps(1_000) == [100, 12, 9, 4, 0]
    assert steps(12) == [12, 9, 4, 0]
    assert steps(11) == [9, 4, 0]
    assert steps(0) == [0]
    assert steps(-1) == []


def test_snapshots_of_a_rewound_step_stand_side_by_side(store: SnapshotStore) -> None:
    one = make_snapshot(b"\x01", step=5)
    two = make_snapshot(b"\x02", step=5)._replace(event_digest=b"e" * 32)
    kept = {store.put_snapshot(one): one, store.put_snapshot(two): two}
    found = list(store.nearest_snapshots("task/1", 5))
    assert set(found) == set(kept)
    assert {ref: store.get_snapshot(ref) for ref in found} == kept


def test_any_session_id_is_kept_apart_from_all_others(store: SnapshotStore) -> None:
    refs = {}
    for number, session_id in enumerate(IDS):
        snapshot = make_snapshot(bytes([number]), session_id=session_id, step=number)
        refs[store.put_snapshot(snapshot)] = snapshot
    assert {ref: store.get_snapshot(ref) for ref in store.list_snapshots()} == refs
    for session_id in IDS:
        assert [ref.session_id for ref in store.list_snapshots(session_id)] == [session_id]
    assert list(store.find_damage()) == []


def test_the_listing_goes_by_session_then_by_step_upwards(store: SnapshotStore) -> None:
    for step in (3, 1, 2):
        for session_id in ("b", "a"):
            store.put_snapshot(make_snapshot(session_id=session_id, step=step))
    listed = [(ref.session_id, ref.step) for ref in store.list_snapshots()]
    assert sorted(listed) == sorted((each, step) for each in "ab" for step in (1, 2, 3))
    assert [step for each, step in listed if each == "a"] == [1, 2, 3]
    assert len({each for each, _step in listed[:3]}) == 1


@pytest.mark.parametrize(
    "ref",
    [
        SnapshotRef("task/1", 1, "000000000001-" + "0" * 32 + ".snap", 10),
        SnapshotRef("task/2", 0, "000000000000-" + "0" * 32 + ".snap", 10),
        SnapshotRef("\ud800", 0, "000000000000-" + "0" * 32 + ".snap", 10),
        SnapshotRef("task/1", 0, "../../../../etc/passwd", 10),
        SnapshotRef("task/1", 0, "", 10),
        SnapshotRef("task/1", 2, "000000000001-" + "0" * 32 + ".snap", 10),
    ],
)
def test_a_snapshot_that_is_not_there_is_an_error(store: SnapshotStore, ref: SnapshotRef) -> None:
    store.put_snapshot(make_snapshot())
    with pytest.raises(SnapshotError):
        store.get_snapshot(ref)


def test_a_wrong_snapshot_is_not_kept(store: SnapshotStore) -> None:
    with pytest.raises(SnapshotError):
        store.put_snapshot(make_snapshot()._replace(state_digest=b"s" * 32))
    with pytest.raises(SnapshotError):
        store.put_snapshot(make_snapshot(session_id="\ud800"))
    assert list(store.list_snapshots()) == []


def test_pickling_carries_only_the_place(store: SnapshotStore) -> None:
    ref = store.put_snapshot(make_snapshot())
    assert pickle.loads(pickle.dumps(store)).get_snapshot(ref) == make_snapshot()


def test_threads_may_put_the_same_snapshots_at_once(store: SnapshotStore) -> None:
    snapshots = [make_snapshot(bytes([step]) * 100, step=step) for step in range(20)]
    threads = [Thread(target=lambda: [store.put_snapshot(s) for s in snapshots]) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [store.get_snapshot(ref) for ref in store.list_snapshots()] == snapshots
