"""What a rank brings to a checkpoint set: exact, a value of its own, and each rank its own."""

import random
from collections import Counter
from typing import Any

import pytest

from eventlog.canonical import encode
from eventlog.errors import (
    CheckpointError,
    ConfigError,
    EventCorruptError,
    ReshardError,
    StateError,
    ValueNotEncodableError,
)
from snapshots.consumed_samples import ConsumedSamples
from snapshots.random_state import restore_random
from snapshots.sample_order import SampleOrder
from snapshots.training_state import (
    TrainingState,
    capture_training_state,
    decode_state,
    decode_training_state,
    encode_state,
    random_for_rank,
)
from tests.support.rank_states import restore_data, restore_scheduler


class Stateful:
    """The protocol of schedulers and loaders; keeps, and spoils, what it is given."""

    def __init__(self, **state: Any) -> None:
        self.state: Any = state

    def state_dict(self) -> Any:
        return self.state

    def load_state_dict(self, state: Any) -> None:
        self.state = state


def captured(*arguments: Any, **named: Any) -> TrainingState:
    return decode_training_state(capture_training_state(*arguments, **named))


ODD: dict[str, Any] = {
    "floats": [1.0, -0.0, 5e-324, float("inf"), 0.1 + 0.2],
    "ints": {1: 2, 2**70: -1},
    "tuple": (1, (2.0, None)),
    "milestones": Counter({30: 1, 60: 2}),
    "text": "ü",
}


def test_everything_comes_back_with_its_type() -> None:
    state = captured(Stateful(**ODD), Stateful(position=7), {"tokens": 10**12, "best": (1, 0.5)})
    scheduler, loader = Stateful(), Stateful()
    restore_scheduler([state], 0, 1, scheduler)
    restore_data([state], 0, 1, loader)
    assert encode(scheduler.state) == encode(ODD)
    assert type(scheduler.state["milestones"]) is Counter
    assert loader.state == {"position": 7}
    assert state.progress == {"tokens": 10**12, "best": (1, 0.5)}
    assert captured().progress is None


def test_a_capture_is_a_value_that_no_load_changes() -> None:
    """torchtitan #647: the second resume saved what the first had been given."""
    live = Stateful(inner={"list": [1, 2]})
    data = capture_training_state(live, live, {"inner": [1]})
    live.state["inner"]["list"].append(3)
    for _ in range(2):
        state = decode_training_state(data)
        for restore in (restore_scheduler, restore_data):
            target = Stateful()
            restore([state], 0, 1, target)
            assert target.state == {"inner": {"list": [1, 2]}}
            target.state["inner"]["list"].clear()
        state.progress["inner"].append(2)
        assert state.progress == {"inner": [1]}
    resumed = Stateful()
    restore_scheduler([decode_training_state(data)], 0, 1, resumed)
    again = capture_training_state(resumed, resumed, {"inner": [1]})
    assert decode_training_state(again)[1:] == decode_training_state(data)[1:]


def test_what_has_no_canonical_form_is_refused_by_its_path() -> None:
    with pytest.raises(ValueNotEncodableError) as caught:
        capture_training_state(Stateful(lr_lambdas=[None, lambda step: step]))
    assert caught.value.path == "$.scheduler.lr_lambdas[1]"
    with pytest.raises(ValueNotEncodableError) as caught:
        capture_training_state(progress={"loader": iter(())})
    assert caught.value.path == "$.progress.loader"
    looped: list[Any] = []
    looped += [looped, looped]
    with pytest.raises(ValueNotEncodableError, match="contains itself"):
        capture_training_state(data={"loop": looped})
    with pytest.raises(ValueNotEncodableError) as caught:  # an object inside a state is no owner
        capture_training_state(Stateful(inner=Stateful()))
    assert caught.value.path == "$.scheduler.inner"
    with pytest.raises(StateError, match="scheduler is a int"):
        capture_training_state(3)


def test_several_objects_by_name_or_in_a_row() -> None:
    owners = {"warm": Stateful(n=1), "main": [Stateful(n=2), Stateful(n=3)], "limit": 9}
    state = captured(owners, {"epoch": 3, "files": ["a"]})
    fresh: dict[str, Any] = {"warm": Stateful(), "main": [Stateful(), Stateful()], "limit": 0}
    warm = fresh["warm"]
    restore_scheduler([state], 0, 1, fresh)
    assert fresh["warm"] is warm
    assert [one.state for one in (warm, *fresh["main"])] == [{"n": 1}, {"n": 2}, {"n": 3}]
    assert fresh["limit"] == 9
    plain = {"old": 1}
    restore_data([state], 0, 1, plain)
    assert plain == {"epoch": 3, "files": ["a"]}


def test_what_cannot_be_loaded_is_refused_by_name() -> None:
    state = captured({"a": Stateful(n=1)}, [1, 2])
    with pytest.raises(StateError, match=r"scheduler has \[\"'b'\"\], saved was \[\"'a'\"\]"):
        restore_scheduler([state], 0, 1, {"b": Stateful()})
    with pytest.raises(StateError, match=r"saved as \{'a': 'Stateful'\} and is a plain value here"):
        restore_scheduler([state], 0, 1, 4)
    with pytest.raises(StateError, match="scheduler, a int"):
        restore_scheduler([state._replace(scheduler_kind=None)], 0, 1, 4)
    restored: list[int] = []
    restore_data([state], 0, 1, restored)
    assert restored == [1, 2]
    with pytest.raises(StateError, match="no scheduler was saved by rank 0, 1"):
        restore_scheduler([captured(), captured()], 0, 2, Stateful())


class Warmup(Stateful):
    """A scheduler of another class, with a state of the same names."""


def test_another_kind_of_scheduler_is_refused_by_name() -> None:
    """A StepLR's state in a CosineAnnealingLR was loaded in silence: a learning rate of 1e-6."""
    with pytest.raises(StateError, match="scheduler was saved as 'Stateful' and is 'Warmup' here"):
        restore_scheduler([captured(Stateful(n=1))], 0, 1, Warmup())
    several = {"a": Stateful(n=1), "b": [Stateful(n=2), 7]}
    other = {"a": Stateful(), "b": [Warmup(), 0]}
    with pytest.raises(StateError, match=r"scheduler\.b\[0\] was saved as 'Stateful'"):
        restore_scheduler([captured(several)], 0, 1, other)
    before_kinds = captured(Stateful(n=1))._replace(scheduler_kind=None)
    fresh = Warmup()
    restore_scheduler([before_kinds], 0, 1, fresh)
    assert fresh.state == {"n": 1}
    assert captured({"limit": 9}).scheduler_kind is None


def test_bytes_that_are_no_training_state() -> None:
    with pytest.raises(EventCorruptError):
        decode_training_state(b"\xc1")
    data = capture_training_state()
    for value in (1, {}, {"format": 1}, {"format": "1"}, {"format": 0}):
        with pytest.raises(CheckpointError, match="not a training state"):
            decode_training_state(encode(value))
    with pytest.raises(CheckpointError, match="format 2, known is 1"):
        decode_training_state(encode({**decode_state(data), "format": 2}))
    with pytest.raises(CheckpointError, match="not a training state"):
        decode_training_state(encode({**decode_state(data), "more": 2}))
    with pytest.raises(CheckpointError, match="not a training state"):
        decode_training_state(encode({**decode_state(data), "data_is_global": 1}))


def test_a_value_by_itself() -> None:
    assert decode_state(encode_state({"groups": [{"lr": 0.1, "betas": (0.9, 0.99)}]}, "x")) == {
        "groups": [{"lr": 0.1, "betas": (0.9, 0.99)}]
    }
    with pytest.raises(ValueNotEncodableError) as caught:
        encode_state({"a": object()}, "optimizer")
    assert caught.value.path == "$.optimizer.a"


def ranks(count: int) -> list[TrainingState]:
    """States of ranks whose generators, schedulers' labels and files differ."""
    states = []
    for rank in range(count):
        random.seed(rank)
        states.append(captured(Stateful(gamma=0.9), Stateful(file=rank), {"rank": rank}))
    return states


def test_each_rank_gets_its_own_random_state() -> None:
    """Megatron-LM #6858, Automodel #3437: one rank's generators were restored on all."""
    states = ranks(4)
    draws = set()
    for rank in range(4):
        restore_random(random_for_rank([one.random for one in states], rank, 4))
        expected = random.Random(rank)
        drawn = [random.random() for _ in range(100)]
        assert drawn == [expected.random() for _ in range(100)]
        draws.add(drawn[0])
        loader = Stateful()
        restore_data(states, rank, 4, loader)
        assert loader.state == {"file": rank}
    assert len(draws) == 4


def test_another_number_of_ranks_is_exact_or_asked_for() -> None:
    states = ranks(4)
    randoms = [one.random for one in states]
    for what in (
        lambda: random_for_rank(randoms, 0, 2),
        lambda: restore_data(states, 0, 2, Stateful()),
    ):
        with pytest.raises(ReshardError, match="of 4 ranks were saved, 2 ranks are to go on"):
            what()
    kept = Stateful(file="fresh")
    restore_data(states, 1, 2, kept, reseed=5)
    assert kept.state == {"file": "fresh"}
    drawn: dict[int, float] = {}
    for _ in range(2):
        for rank in range(8):
            restore_random(random_for_rank(randoms, rank, 8, reseed=5))
            drawn.setdefault(rank, random.random())
            restore_random(random_for_rank(randoms, rank, 8, reseed=5))
            assert random.random() == drawn[rank]
    restore_random(random_for_rank(randoms, 0, 8, reseed=6))
    assert len({*drawn.values(), random.random()}) == 9
    assert random_for_rank(randoms, 2, 4, reseed=5) == randoms[2], "exact where it can be"
    assert random_for_rank(randoms, 2, 4, always=True) == randoms[2]
    of_branch = random_for_rank(randoms, 2, 4, reseed=5, always=True)
    assert of_branch == random_for_rank(randoms, 2, 8, reseed=5)
    scheduler = Stateful()
    restore_scheduler(states, 5, 8, scheduler)
    assert scheduler.state == {"gamma": 0.9}
    differing = [captured(Stateful(rank=rank)) for rank in range(2)]
    with pytest.raises(ReshardError, match="differing schedulers of 2 ranks"):
        restore_scheduler(differing, 0, 1, scheduler)


@pytest.mark.parametrize(("rank", "world_size"), [(4, 4), (-1, 4), (0, 0), (True, 4), (0, 4.0)])
def test_a_rank_that_is_none(rank: Any, world_size: Any) -> None:
    with pytest.raises(ConfigError, match="ranks"):
        random_for_rank([1, 2, 3, 4], rank, world_size)


def test_no_state_and_no_seed() -> None:
    with pytest.raises(CheckpointError, match="no rank"):
        random_for_rank([], 0, 1)
    for world_size in (1, 2):  # with as many ranks as saved it was no error
        with pytest.raises(ConfigError, match="reseed is '5'"):
            random_for_rank([1, 2], 0, world_size, reseed="5")  # type: ignore[arg-type]


def test_a_global_position_fits_any_number_of_ranks() -> None:
    def order(rank: int, world_size: int, **more: Any) -> SampleOrder:
        return SampleOrder(20, batch_size=4, seed=1, rank=rank, world_size=world_size, **more)

    orders = [order(rank, 2) for rank in range(2)]
    for one in orders:
        one.next_batch()
    states = [captured(None, one) for one in orders]
    assert all(state.data_is_global for state in states)
    expected = order(0, 1)
    expected.next_batch()
    whole = expected.next_batch()
    for world_size in (1, 2, 3, 4):
        batch = []
        for rank in range(world_size):
            resumed = order(rank, world_size)
            restore_data(states, rank, world_size, resumed)
            batch += resumed.next_batch()
        assert sorted(batch) == sorted(whole)
    with pytest.raises(StateError, match="saved by rank 0 is a global one, that of Stateful"):
        restore_data(states, 0, 2, Stateful())
    with pytest.raises(StateError, match="saved by rank 0 is not a global one"):
        restore_data(ranks(2), 0, 2, order(0, 2))
    orders[1].next_batch()
    with pytest.raises(CheckpointError, match="rank 1 has yielded"):
        restore_data([captured(None, one) for one in orders], 0, 2, order(0, 2))


def test_global_positions_by_name() -> None:
    """A dict of global ones is global; what each rank consumed is merged."""
    states = []
    for rank in range(2):
        order = SampleOrder(8, batch_size=4, seed=0, rank=rank, world_size=2, out_of_order=True)
        order.consume(order.next_batch()[:1])
        states.append(captured(None, {"order": order, "done": [ConsumedSamples([f"r{rank}"])]}))
    resumed = SampleOrder(8, batch_size=4, seed=0, out_of_order=True)
    done = ConsumedSamples()
    restore_data(states, 0, 1, {"order": resumed, "done": [done]})
    assert list(done) == ["r0", "r1"]
    assert len(resumed.consumed_ids(0)) == 2


def test_a_global_position_that_is_not_merged_must_be_the_same() -> None:
    class Global(Stateful):
        state_is_global = True

    states = [captured(None, Global(n=n)) for n in (1, 1, 2)]
    target = Global()
    restore_data(states[:2], 0, 1, target)
    assert target.state == {"n": 1}
    with pytest.raises(CheckpointError, match="rank 2 is not that of rank 0"):
        restore_data(states, 0, 1, target)


def _nested(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("depth", [300, 900, 5000])
def test_a_progress_that_is_nested_too_deep_is_refused_by_its_path(depth: int) -> None:
    """It was a RecursionError, which no handler of this library's errors caught."""
    with pytest.raises(ValueNotEncodableError, match=r"\$\.progress\[0\]\[0\]"):
        capture_training_state(progress=_nested(depth))
    captured = capture_training_state(progress=_nested(150))
    assert encode(decode_training_state(captured).progress) == encode(_nested(150))
