"""Which of the checkpoints of one step was saved last, whatever the clock says."""

import random
from collections.abc import Iterable
from pathlib import Path

from eventlog.cut import Cut
from snapshots.checkpoint_store import CheckpointStore
from snapshots.checkpoints.manifest import CheckpointRef, Manifest
from snapshots.checkpoints.saved_again import saved_last
from snapshots.checkpoints.set_entry import SetEntry
from tests.support.checkpoint_parts import write_checkpoint


def manifest(
    id_: str,
    created_ns: int,
    *,
    ancestor: CheckpointRef | None = None,
    generation: int = 0,
    place: tuple[int, int] | None = None,
) -> tuple[CheckpointRef, Manifest]:
    entry = None
    if place is not None:
        entry = SetEntry(
            training="run",
            attempt=place[0],
            step=place[1],
            event_digest=bytes(32),
            cut=Cut.empty(),
            log={},
            sessions={},
            policy=None,
            previous=None,
            adopted=None,
        )
    made = Manifest(id_, 5, 1, created_ns, {}, generation, ancestor, {}, {}, entry)
    return CheckpointRef(5, id_, "0" * 64), made


def last_of(*made: tuple[CheckpointRef, Manifest], above: Iterable[Manifest] = ()) -> str:
    refs = {CheckpointRef(one.training_step, one.id, "0" * 64): one for one in above}
    ids = set()
    for seed in range(6):
        shuffled = list(made)
        random.Random(seed).shuffle(shuffled)
        ids.add(saved_last(dict(shuffled), refs).id)
    (found,) = ids
    return found


def test_sets_are_in_the_order_of_their_training() -> None:
    """The clock had gone back: of a step that was saved twice the older one was given."""
    first = manifest("b", 900, place=(1, 9))
    assert last_of(first, manifest("a", 100, place=(1, 10))) == "a"
    assert last_of(first, manifest("a", 100, place=(2, 3))) == "a"
    assert last_of(first, manifest("z", 999)) == "b", "what is no set was there before"


def test_nothing_was_saved_before_what_it_rests_on() -> None:
    whole = manifest("w", 900)
    near = manifest("n", 500, ancestor=whole[0], generation=1)
    far = manifest("f", 100, ancestor=near[0], generation=2)
    assert last_of(whole, near) == "n"
    assert last_of(whole, near, far) == "f"
    assert last_of(whole, far, above=[near[1]]) == "f"
    assert last_of(whole, manifest("x", 901), near, far) == "x"
    assert last_of(whole, far) == "w", "what is between them is gone: the clock decides"


def test_a_manifest_that_rests_on_itself_ends() -> None:
    ref, made = manifest("a", 1, ancestor=CheckpointRef(5, "a", "0" * 64), generation=1)
    assert last_of((ref, made), manifest("b", 2)) == "b"


def test_the_head_is_what_counts_of_its_step(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    first = write_checkpoint(store, 5, {"t": b"1"})
    second = write_checkpoint(store, 5, {"t": b"2"})
    assert store.find_checkpoint(step=5) == second
    store.move_head(first)
    assert store.find_checkpoint(step=5) == first
    (tmp_path / "HEAD").write_text("damaged")
    assert store.find_checkpoint(step=5) == second


def test_of_a_step_that_rests_on_the_one_before_the_clock_does_not_decide(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    noise = random.Random(1).randbytes(100_000)
    first = write_checkpoint(store, 5, {"t": noise})
    between = write_checkpoint(store, 6, {"t": noise[:-1] + b"1"}, ancestor=first, generation=1)
    made = store.read_manifest(
        write_checkpoint(store, 5, {"t": noise[:-1] + b"2"}, ancestor=between, generation=2)
    )
    assert made.ancestor == between
    back = store.keep_manifest(made._replace(id="back", created_ns=1))
    store.move_head(between)
    assert store.find_checkpoint(step=5, checkpoint="back") == back
    for ref in store.list_checkpoints():
        if ref not in (first, back, between):
            (store.set_folder(ref) / "manifest.json").unlink()
    assert store.find_checkpoint(step=5) == back
