"""The order of samples: the same for ever, and resumed at any place as if never stopped."""

import hashlib
import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.canonical import decode, encode
from eventlog.errors import CheckpointError, ConfigError, StateError
from snapshots.consumed_samples import ConsumedSamples, IntRanges
from snapshots.sample_order import SampleOrder, epoch_order


def order_of(count: int = 60, batch_size: int = 10, seed: int = 7, **more: Any) -> SampleOrder:
    return SampleOrder(count, batch_size=batch_size, seed=seed, **more)


def stored(state: object) -> Any:
    """A state after a round through its bytes."""
    return decode(encode(state))


def world(count: int, batch_size: int, size: int, states: Any = None, **more: Any) -> Any:
    """The orders of all ranks; resumed from the states of other ranks where these are given."""
    orders = [
        order_of(count, batch_size, rank=rank, world_size=size, **more) for rank in range(size)
    ]
    if states is not None:
        for order in orders:
            order.load_state_dict(SampleOrder.merge_states(list(map(stored, states))))
    return orders


def global_batch(orders: list[SampleOrder]) -> list[int]:
    """The next batch of all ranks, put together again as it was dealt out."""
    shares = [order.next_batch() for order in orders]
    size = sum(map(len, shares))
    return [shares[place % len(shares)][place // len(shares)] for place in range(size)]


def test_the_order_is_the_same_for_ever() -> None:
    """Golden: places in these orders are stored in checkpoints."""
    assert list(epoch_order(10, 7, 0)) == GOLDEN
    text = ",".join(map(str, epoch_order(1000, -(2**80), 3)))
    assert hashlib.sha256(text.encode()).hexdigest() == GOLDEN_SHA256


GOLDEN = [9, 7, 5, 4, 2, 0, 3, 8, 1, 6]
GOLDEN_SHA256 = "7a50b102c31059b9b7ffd3f9e2562af00e810fd8f198686ac4bce81d9197a36f"


def test_each_epoch_has_an_order_of_its_own() -> None:
    orders = [tuple(epoch_order(60, seed, epoch)) for seed in (0, 1) for epoch in range(3)]
    assert len(set(orders)) == 6
    assert all(sorted(order) == list(range(60)) for order in orders)


def test_every_place_is_as_likely() -> None:
    """Chi-squared of where sample 0 of 6 comes, over 6,000 epochs: 5 degrees of freedom."""
    places = Counter(epoch_order(6, 1, epoch).index(0) for epoch in range(6000))
    assert sum((places[place] - 1000) ** 2 / 1000 for place in range(6)) < 20.5  # p = 0.001


@pytest.mark.parametrize("stop", [3, 6, 7])
def test_a_checkpoint_at_the_end_of_an_epoch(stop: int) -> None:
    """Case D3 (verl #7401): resumed there, the loader was exhausted and no step was done."""
    whole = order_of()
    batches = [whole.next_batch() for _ in range(18)]
    for epoch in range(3):
        ids = [one for batch in batches[epoch * 6 : epoch * 6 + 6] for one in batch]
        assert sorted(ids) == list(range(60))
    stopped = order_of()
    for _ in range(stop):
        stopped.next_batch()
    resumed = order_of()
    resumed.load_state_dict(stored(stopped.state_dict()))
    assert resumed.epoch == stopped.epoch == stop // 6
    first = next(iter(resumed))
    assert first == batches[stop]
    assert [first, *(resumed.next_batch() for _ in range(17 - stop))] == batches[stop:]


def test_the_loops_that_trainers_write() -> None:
    """By epochs and by steps; saved in the loop's body, resumed in a loop like it."""

    def by_epochs(order: SampleOrder, saves: dict[int, Any]) -> list[list[int]]:
        seen = []
        for _ in range(order.epoch, 3):
            for ids in order:
                seen.append(ids)
                saves[len(seen)] = order.state_dict()
        return seen

    saves: dict[int, Any] = {}
    whole = by_epochs(order_of(), saves)
    assert len(whole) == 18
    for step, state in saves.items():
        resumed = order_of()
        resumed.load_state_dict(stored(state))
        assert by_epochs(resumed, {}) == whole[step:]


def test_resumed_three_times_in_one_epoch() -> None:
    """torchdata #1437: samples were dropped and repeated from the second resume on."""
    whole = [batch for order in [order_of(97, 8)] for batch in order]
    seen: list[list[int]] = []
    state = None
    for steps in (3, 4, 2, 4):
        order = order_of(97, 8)
        if state is not None:
            order.load_state_dict(stored(state))
        seen += [order.next_batch() for _ in range(steps)]
        state = order.state_dict()
    assert seen == whole
    assert len(whole) == len(order_of(97, 8)) == 13


def test_a_position_is_small_and_of_no_rank() -> None:
    orders = world(1_000, 64, 4)
    for _ in range(9):
        global_batch(orders)
    states = [order.state_dict() for order in orders]
    assert states[0] == states[3]
    assert states[0]["consumed"] == [[[0, 576]]]
    assert len(encode(states[0])) < 150


def test_a_state_loaded_while_iterated_ends_the_loop() -> None:
    order = order_of()
    batches = iter(order)
    next(batches)
    order.load_state_dict(order.state_dict())
    with pytest.raises(StateError, match="while it was iterated"):
        next(batches)


@given(
    st.integers(1, 70), st.integers(1, 12), st.booleans(), st.booleans(),
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 9)), min_size=1, max_size=5),
)  # fmt: skip
def test_any_number_of_ranks_goes_on_in_the_same_order(
    count: int, batch_size: int, drop_last: bool, shuffle: bool, stays: list[tuple[int, int]]
) -> None:
    """Each stay: so many ranks, for so many batches; then all are saved and others go on."""
    if drop_last and batch_size > count:
        return
    more = {"drop_last": drop_last, "shuffle": shuffle}
    alone = order_of(count, batch_size, **more)
    states: Any = None
    for size, batches in stays:
        orders = world(count, batch_size, size, states, **more)
        for _ in range(batches):
            epoch = alone.epoch
            assert {order.epoch for order in orders} == {epoch}
            assert global_batch(orders) == alone.next_batch()
        states = [order.state_dict() for order in orders]


@given(
    st.integers(1, 40), st.integers(1, 9), st.booleans(),
    st.lists(st.tuples(st.integers(1, 4), st.integers(1, 6)), min_size=1, max_size=6),
    st.randoms(use_true_random=False),
)  # fmt: skip
def test_out_of_order_none_is_skipped_and_none_comes_twice(
    count: int,
    batch_size: int,
    drop_last: bool,
    stays: list[tuple[int, int]],
    chance: random.Random,
) -> None:
    """Rollouts finish in any order, some never before a save; ranks change; epochs overlap."""
    if drop_last and batch_size > count:
        return
    more = {"drop_last": drop_last, "out_of_order": True}
    finished: Counter[int] = Counter()
    states: Any = None
    orders: list[SampleOrder] = []
    for size, batches in stays:
        orders = world(count, batch_size, size, states, **more)
        flying: list[list[int]] = [[] for _ in orders]
        for _ in range(batches):
            for order, mine in zip(orders, flying, strict=True):
                mine += order.next_batch()
                chance.shuffle(mine)
                done = mine[: chance.randint(0, len(mine))]
                del mine[: len(done)]
                order.consume(done)
                finished.update(done)
        states = [order.state_dict() for order in orders]
    # At the end all that is open is finished: then whole epochs are, each sample once in each.
    orders = world(count, batch_size, 1, states, **more)
    last = order_of(count, batch_size, **more)
    last.load_state_dict(SampleOrder.merge_states(list(map(stored, states))))
    while last.state_dict()["consumed"] or not finished:
        ids = last.next_batch()
        last.consume(ids)
        finished.update(ids)
    epochs = last.epoch
    used = count - count % batch_size if drop_last else count
    expected: Counter[int] = Counter()
    for epoch in range(epochs):
        expected.update(epoch_order(count, 7, epoch)[:used])
    assert finished == expected


def test_what_was_yielded_and_not_consumed_comes_first() -> None:
    order = order_of(out_of_order=True)
    first, second = order.next_batch(), order.next_batch()
    order.consume(second)
    order.consume(first[:4])
    assert order.consumed_ids(0) == sorted([*second, *first[:4]])
    state = stored(order.state_dict())
    assert state["consumed"] == [[[0, 4], [10, 20]]]
    resumed = order_of(out_of_order=True)
    resumed.load_state_dict(state)
    batch = resumed.next_batch()
    assert batch[:6] == first[4:]
    assert batch[6:] == list(epoch_order(60, 7, 0)[20:24])
    # Before anything finishes, nothing is done: a count of batches would skip all of it.
    untouched = order_of(out_of_order=True)
    untouched.next_batch()
    again = order_of(out_of_order=True)
    again.load_state_dict(stored(untouched.state_dict()))
    assert again.next_batch() == first


def test_an_epoch_that_is_not_finished_stays_open() -> None:
    """A straggler of epoch 0 comes again after a restore in epoch 1, and only it."""
    order = order_of(6, 3, out_of_order=True)
    straggler, *rest = order.next_batch()
    order.consume(rest)
    order.consume(order.next_batch())
    assert order.epoch == 1
    again = [one for one in order.next_batch() if one != straggler]
    order.consume(again)
    assert order.consumed_ids(0) == sorted(set(range(6)) - {straggler})
    assert order.consumed_ids(1) == sorted(again)
    resumed = order_of(6, 3, out_of_order=True)
    resumed.load_state_dict(stored(order.state_dict()))
    assert resumed.epoch == 0
    assert list(resumed) == [[straggler]]
    assert resumed.epoch == 1
    assert sorted([*again, *(one for ids in resumed for one in ids)]) == list(range(6))
    order.consume([straggler])
    assert order.state_dict()["epoch"] == 1
    assert order.consumed_ids(0) == list(range(6))


def test_consuming_what_was_not_yielded_is_refused_and_marks_nothing() -> None:
    order = order_of(out_of_order=True, rank=1, world_size=2)
    mine = order.next_batch()
    state = order.state_dict()
    others = [one for one in epoch_order(60, 7, 0)[:10] if one not in mine]
    wrong: list[list[Any]] = [[mine[0], others[0]], [mine[0]] * 2, [60], [-1], ["7"], [True], [0.5]]
    for ids in wrong:
        with pytest.raises(StateError, match="was not yielded to rank 1"):
            order.consume(ids)
        assert order.state_dict() == state
    order.consume(mine)
    with pytest.raises(StateError, match="or is done already"):
        order.consume(mine[:1])
    with pytest.raises(StateError, match="out_of_order=True"):
        order_of().consume([])


def test_the_states_of_ranks_that_do_not_fit_together() -> None:
    orders = world(60, 10, 2, out_of_order=True)
    states = [order.state_dict() for order in orders]
    with pytest.raises(StateError, match=r"one rank of several.*\[1, 2\]"):
        orders[1].load_state_dict(states[1])
    for given_states in (states[:1], states[::-1], [states[0], states[0]]):
        with pytest.raises(CheckpointError, match="of_rank"):
            SampleOrder.merge_states(given_states)
    orders[1].next_batch()
    with pytest.raises(CheckpointError, match="rank 1 has yielded"):
        SampleOrder.merge_states([order.state_dict() for order in orders])
    with pytest.raises(CheckpointError, match="rank 1 has seed 8"):
        SampleOrder.merge_states([order_of().state_dict(), order_of(seed=8).state_dict()])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 8}, "seed 8, this SampleOrder 7"),
        ({"sample_count": 61}, "sample_count 61"),
        ({"shuffle": False}, "shuffle False"),
        ({"drop_last": True}, "drop_last True"),
        ({"format": 2}, "format 2"),
        ({"epoch": -1}, "not the state"),
        ({"epoch": True}, "not the state"),
        ({"consumed": 3}, "not the state"),
        ({"consumed": [3]}, "not the state"),
        ({"consumed": [[[0, 61]]]}, "beyond its samples"),
        ({"consumed": [[[-1, 5]]]}, "beyond its samples"),
        ({"consumed": [[[5, 5]]]}, "ascending ranges"),
        ({"consumed": [[[0, 5], [5, 9]]]}, "ascending ranges"),
        ({"consumed": [[[0, 5, 9]]]}, "ascending ranges"),
        ({"consumed": [[[0.0, 5]]]}, "ascending ranges"),
        ({"more": 1}, "not the state"),
    ],
)
def test_a_state_that_does_not_fit_changes_nothing(change: dict[str, Any], message: str) -> None:
    order = order_of()
    order.next_batch()
    before = order.state_dict()
    with pytest.raises(StateError, match=message) as caught:
        order.load_state_dict({**before, **change})
    assert caught.value.hint
    assert order.state_dict() == before
    with pytest.raises(StateError, match="not the state"):
        order.load_state_dict([])  # type: ignore[arg-type]


def test_another_batch_size_goes_on_at_the_same_sample() -> None:
    order = order_of()
    order.next_batch()
    resumed = order_of(batch_size=25)
    resumed.load_state_dict(order.state_dict())
    rest = [one for ids in resumed for one in ids]
    assert rest == list(epoch_order(60, 7, 0)[10:])
    dropping = order_of(batch_size=10, drop_last=True)
    dropping.load_state_dict({**order.state_dict(), "drop_last": True, "consumed": [[[0, 55]]]})
    assert [len(ids) for ids in dropping] == [5]


@pytest.mark.parametrize(
    "wrong",
    [
        {"sample_count": 0}, {"sample_count": 2**33}, {"sample_count": 6.0}, {"batch_size": 0},
        {"seed": "7"}, {"seed": None}, {"seed": True}, {"rank": 1}, {"rank": -1},
        {"world_size": 0}, {"shuffle": 1}, {"drop_last": None}, {"out_of_order": "yes"},
        {"drop_last": True, "batch_size": 61},
    ],
)  # fmt: skip
def test_what_makes_no_order(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        SampleOrder(**{"sample_count": 60, "batch_size": 10, "seed": 7, **wrong})


def test_consumed_samples_alone() -> None:
    done = ConsumedSamples(["task/1", 7])
    done.add("task/2")
    done.add(range(8, 1000))
    done.add([7, "task/1"])
    assert len(done) == 995
    assert all(one in done for one in (7, 999, "task/1", "task/2"))
    assert not any(one in done for one in (6, 1000, "7", True, None))
    state = stored(done.state_dict())
    assert state == {"format": 1, "ints": [[7, 1000]], "texts": ["task/1", "task/2"]}
    again = ConsumedSamples()
    again.load_state_dict(state)
    assert list(again) == list(done)
    other = ConsumedSamples([3, "task/3"])
    merged = ConsumedSamples.merge_states([state, other.state_dict()])
    assert merged["ints"] == [[3, 4], [7, 1000]]
    assert merged["texts"] == ["task/1", "task/2", "task/3"]
    assert "995 ids" in repr(done)


@pytest.mark.parametrize("one", [1.0, True, None, b"x", ("a",), "\udc00"])
def test_what_is_no_sample_id(one: Any) -> None:
    done = ConsumedSamples()
    with pytest.raises(StateError):
        done.add(["a", one])
    assert not len(done)


@pytest.mark.parametrize(
    "state",
    [
        [], {}, {"format": 1, "ints": []}, {"format": 2, "ints": [], "texts": []},
        {"format": 1, "ints": {}, "texts": []}, {"format": 1, "ints": [], "texts": [1]},
        {"format": 1, "ints": [], "texts": ["b", "a"]}, {"format": 1, "ints": [[1]], "texts": []},
        {"format": 1, "ints": [], "texts": ["a", "a"]}, {"format": 1, "ints": [3], "texts": []},
    ],
)  # fmt: skip
def test_what_is_no_state_of_consumed_samples(state: Any) -> None:
    done = ConsumedSamples([5])
    with pytest.raises(StateError):
        done.load_state_dict(state)
    assert list(done) == [5]


@given(st.lists(st.tuples(st.integers(-20, 40), st.integers(0, 9))), st.integers(-25, 30))
def test_ranges_are_a_set(added: list[tuple[int, int]], start: int) -> None:
    ranges, numbers = IntRanges(), set[int]()
    for begin, length in added:
        ranges.add_range(begin, begin + length)
        numbers |= set(range(begin, begin + length))
    assert list(ranges) == sorted(numbers)
    assert len(ranges) == len(numbers)
    assert all((number in ranges) == (number in numbers) for number in range(-25, 55))
    assert IntRanges(ranges.ranges()).ranges() == ranges.ranges()
    holes = [one for hole in ranges.holes(start, start + 20) for one in hole]
    assert holes == [one for one in range(start, start + 20) if one not in numbers]
