"""Every keeper: many threads and handles at once; one wins, nothing is lost, nothing is twice."""

import threading
from collections.abc import Callable
from functools import partial

from eventlog.cut import Cut
from eventlog.errors import FencedError, StepConflictError
from eventlog.log import EventLog
from tests.support.events import EventChain
from tests.support.keepers import Keeper
from tests.support.recorded import append_all, data_of, seeded_chain


def all_at_once(actions: list[Callable[[], object]]) -> list[object]:
    """Run each in a thread of its own, begun together; what each gave or raised."""
    barrier = threading.Barrier(len(actions))
    results: list[object] = [None] * len(actions)

    def run(place: int) -> None:
        barrier.wait()
        try:
            results[place] = actions[place]()
        except (FencedError, StepConflictError) as error:
            results[place] = error

    threads = [threading.Thread(target=run, args=(place,)) for place in range(len(actions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_two_threads_at_one_step_one_wins(log: EventLog) -> None:
    seeded = seeded_chain(log, "s")
    for number in range(30):
        rivals = []
        for rival in range(4):
            chain = EventChain("s", seed=1_000 + 100 * number + rival)
            chain.head = seeded.head
            rivals.append([chain.call(), chain.returned()])
        results = all_at_once([partial(append_all, log, batch) for batch in rivals])
        won = [place for place, each in enumerate(results) if not isinstance(each, Exception)]
        assert len(won) == 1
        assert all(isinstance(results[p], StepConflictError) for p in range(4) if p != won[0])
        seeded.events += rivals[won[0]]
        seeded.head = log.session_info("s").head
    assert data_of(log.read_session("s")) == [encoded.data for encoded in seeded.events]


def test_handles_that_take_over_at_once_all_but_the_last_are_fenced(keeper: Keeper) -> None:
    chain = seeded_chain(keeper.log, "s")
    handles = [keeper.another_handle() for _ in range(6)]
    stands_on = {"s": chain.head.digest}
    results = all_at_once(
        [partial(h.take_over, ["s"], stands_on=stands_on, reason="x") for h in handles]
    )
    attempts = sorted(result["s"] for result in results)  # type: ignore[index]
    # A number that a claim was sent with is used up, also where its sender was fenced meanwhile.
    assert len(set(attempts)) == 6
    assert attempts[0] >= 2
    chain.head = keeper.log.session_info("s").head
    event = chain.call()
    results = all_at_once([partial(append_all, h, [event]) for h in handles])
    fenced = [isinstance(result, FencedError) for result in results]
    # A handle that asks after the winner wrote gets the winner's receipt: it is the same event.
    assert sum(not each for each in fenced) >= 1
    assert keeper.log.session_info("s").step_count == 7


def test_the_same_append_by_many_threads_is_written_once(log: EventLog) -> None:
    chain = seeded_chain(log, "s")
    batch = [chain.call(), chain.returned()]
    results = all_at_once([lambda: append_all(log, batch)] * 12)
    assert len(set(results)) == 1
    assert log.session_info("s").step_count == 7


def test_the_same_seed_by_many_handles_is_one_session(keeper: Keeper) -> None:
    chain = EventChain("s")
    seed = chain.seed()
    handles = [keeper.another_handle() for _ in range(6)]
    results = all_at_once([partial(append_all, h, [seed]) for h in handles])
    assert len(set(results)) == 1
    assert [info.session_id for info in keeper.log.list_sessions()] == ["s"]


def test_sixteen_writers_of_their_own_sessions(keeper: Keeper) -> None:
    def record(handle: EventLog, name: str) -> EventChain:
        chain = seeded_chain(handle, name)
        for _ in range(25):
            append_all(handle, [chain.call()])
            append_all(handle, [chain.returned(), chain.verified()])
        return chain

    handles = [keeper.log, keeper.another_handle()] * 8
    results = all_at_once([partial(record, h, f"s{n}") for n, h in enumerate(handles)])
    every: set[bytes] = set()
    for chain in results:
        assert isinstance(chain, EventChain)
        expected = [encoded.data for encoded in chain.events]
        assert data_of(keeper.log.read_session(chain.session_id)) == expected
        every.update(expected)
    tail = data_of(keeper.log.tail_events(Cut.empty()))
    assert len(tail) == len(every) == 16 * 80
    assert set(tail) == every
    assert list(keeper.log.find_damage()) == []


def test_readers_beside_a_writer_always_see_a_whole_line(keeper: Keeper) -> None:
    chain = seeded_chain(keeper.log, "s")
    done = threading.Event()
    seen: list[int] = []
    wrong: list[object] = []

    def read() -> None:
        handle = keeper.another_handle()
        is_last = False
        while not is_last:
            is_last = done.is_set()
            records = list(handle.read_session("s"))
            seen.append(len(records))
            if [record.prefix.step for record in records] != list(range(len(records))):
                wrong.append(records)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for number in range(60):
        append_all(keeper.log, [chain.call(), chain.returned()])
        if number % 20 == 19:
            base = chain.events[3]
            keeper.log.take_over(["s"], stands_on={"s": base.digest}, reason="x")
            chain.events = chain.events[:4]
            chain.head = keeper.log.session_info("s").head
    done.set()
    for reader in readers:
        reader.join()
    assert seen
    assert not wrong


def test_what_was_submitted_is_settled(keeper: Keeper) -> None:
    """A checkpoint set took its cut while a call that was recorded lay in the queue: the set had
    the session before its call, and everything else after it."""
    chains = [seeded_chain(keeper.log, f"s-{number}", calls=0) for number in range(20)]
    futures = [
        keeper.log.submit_events(chain.session_id, [chain.call()], expected_step=0)
        for chain in chains
    ]
    keeper.log.settle()
    assert all(future.done() for future in futures)
    assert [keeper.log.session_info(chain.session_id).step_count for chain in chains] == [2] * 20
    keeper.another_handle().settle()
