"""What two checkpoints hold differently, also where the two are not cut alike."""

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.errors import CheckpointError
from snapshots.checkpoint_store import CheckpointStore
from snapshots.checkpoints import part_writer
from snapshots.checkpoints.check import CheckpointChecker, Soundness
from snapshots.checkpoints.difference import changed_numbers, compare_checkpoints
from snapshots.checkpoints.manifest import CheckpointRef, Chunk, TensorEntry
from snapshots.checkpoints.parts import PartReader
from tests.support.checkpoint_parts import write_checkpoint

CHANCE = random.Random(6)
ROWS, COLUMNS = 6, 8


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(tmp_path)


def reader(store: CheckpointStore, ref: CheckpointRef) -> PartReader:
    return PartReader(store, store.read_manifest(ref))


def cut(store: CheckpointStore, id_: str, whole: bytes, *, at: int, by_column: bool) -> PartReader:
    """A checkpoint of one matrix of int16 that two ranks hold, as it is cut at a row or column."""
    blocks: list[tuple[tuple[int, int], tuple[int, int]]]
    if by_column:
        blocks = [((0, 0), (ROWS, at)), ((0, at), (ROWS, COLUMNS - at))]
    else:
        blocks = [((0, 0), (at, COLUMNS)), ((at, 0), (ROWS - at, COLUMNS))]
    pieces = {}
    for number, (offset, shape) in enumerate(blocks):
        rows = range(offset[0], offset[0] + shape[0])
        starts = [2 * (row * COLUMNS + offset[1]) for row in rows]
        pieces[f"c{number}"] = b"".join(whole[start : start + 2 * shape[1]] for start in starts)
    manifest = store.read_manifest(write_checkpoint(store, 1, pieces))
    chunks = tuple(
        Chunk(offset, shape, manifest.tensors[f"c{number}"].chunks[0].parts)
        for number, (offset, shape) in enumerate(blocks)
    )
    tensors = {"t": TensorEntry("int16", (ROWS, COLUMNS), chunks[::-1], ("t",))}
    return reader(store, store.keep_manifest(manifest._replace(id=id_, tensors=tensors)))


@given(st.binary(max_size=64), st.integers(0, 64), st.randoms(), st.sampled_from([1, 2, 4, 8, 16]))
def test_numbers_are_counted(
    data: bytes, flips: int, chance: random.Random, item_bytes: int
) -> None:
    left = data * item_bytes
    right = bytearray(left)
    for _ in range(flips if left else 0):
        right[chance.randrange(len(left))] ^= 1 << chance.randrange(8)
    pairs = [
        (left[at : at + item_bytes], bytes(right[at : at + item_bytes]))
        for at in range(0, len(left), item_bytes)
    ]
    differing = sum(one != other for one, other in pairs)
    assert changed_numbers(left, bytes(right), item_bytes) == differing


@pytest.mark.parametrize("by_column", [False, True])
@pytest.mark.parametrize("at", [1, 3, 5])
def test_the_same_numbers_saved_by_other_ranks_do_not_differ(
    store: CheckpointStore, at: int, by_column: bool
) -> None:
    whole = CHANCE.randbytes(2 * ROWS * COLUMNS)
    one = cut(store, "one", whole, at=2, by_column=False)
    other = cut(store, "other", whole, at=at, by_column=by_column)
    assert list(compare_checkpoints(one, other)) == []
    assert list(compare_checkpoints(other, one, count_numbers=True)) == []
    place = CHANCE.randrange(len(whole))
    altered = whole[:place] + bytes([whole[place] ^ 8]) + whole[place + 1 :]
    (changed,) = compare_checkpoints(one, cut(store, "alt", altered, at=at, by_column=by_column))
    assert (changed.name, changed.parts) == ("t", None)
    assert (changed.numbers, changed.numbers_changed) == (ROWS * COLUMNS, 1)


def test_chunks_that_overlap_are_refused(store: CheckpointStore) -> None:
    whole = bytes(2 * ROWS * COLUMNS)
    one = cut(store, "one", whole, at=2, by_column=False)
    entry = one.manifest.tensors["t"]
    # The right count of numbers at places that nobody can hold.
    low, high = sorted(entry.chunks, key=lambda chunk: chunk.offset)
    moved = entry._replace(chunks=(low, high._replace(offset=(1, 0))))
    forged = store.keep_manifest(one.manifest._replace(id="forged", tensors={"t": moved}))
    with pytest.raises(CheckpointError, match="two of its chunks overlap"):
        list(compare_checkpoints(one, reader(store, forged)))


def test_of_many_parts_those_that_changed_are_counted(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part_writer, "PART_BYTES", 70_000)
    raw = bytearray(CHANCE.randbytes(300_000))
    before = reader(store, write_checkpoint(store, 1, {"w": bytes(raw), "same": b"x"}))
    raw[0] ^= 1
    raw[1] ^= 1
    raw[290_000] ^= 1
    after = reader(store, write_checkpoint(store, 2, {"w": bytes(raw), "same": b"x"}))
    (changed,) = compare_checkpoints(before, after, count_numbers=True)
    assert (changed.parts, changed.parts_changed, changed.numbers_changed) == (5, 2, 3)


def test_a_check_reads_what_two_share_once_and_says_all_that_is_wrong(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensors = {f"t{number}": CHANCE.randbytes(70_000) for number in range(4)}
    refs = [write_checkpoint(store, step, tensors) for step in range(3)]
    calls: list[int] = []
    read_part = PartReader.read_part

    def counted(self: PartReader, *arguments: object) -> object:
        calls.append(1)
        return read_part(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(PartReader, "read_part", counted)
    done: list[int] = []
    checker = CheckpointChecker(done.append)
    found = [checker.check(store, ref) for ref in refs]
    assert {one.verdict for one in found} == {Soundness.OK}
    assert len(calls) == 4
    assert sum(done) == sum(one.bytes for one in found) == 3 * 4 * 70_000
    parts = {one.tensor: one.part for one in store.read_manifest(refs[0]).parts()}
    store.objects.object_path(parts["t1"].stored.digest).unlink()
    store.objects.object_path(parts["t2"].stored.digest).write_bytes(b"")
    checked = CheckpointChecker(done.append).check(store, refs[2])
    assert checked.verdict is Soundness.DAMAGED
    assert [one.tensor for one in checked.problems] == ["t1", "t2"]


def test_a_check_of_what_is_not_there_says_so(store: CheckpointStore) -> None:
    ref = write_checkpoint(store, 1, {"t": b"x"})
    checked = CheckpointChecker(lambda _bytes: None).check(store, ref._replace(id="none"))
    assert (checked.verdict, checked.parts) == (Soundness.INCOMPLETE, 0)
