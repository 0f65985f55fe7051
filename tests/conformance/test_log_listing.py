"""Every keeper: what it says of sessions without reading their events, and the check of it all."""

import math

import pytest

from eventlog.content import OCTET_STREAM, BlobRef, Content
from eventlog.errors import SessionNotFoundError
from eventlog.event import LineHead, SessionLost
from eventlog.log import EventLog, SessionFilter
from tests.support.events import EventChain
from tests.support.recorded import append_all, seeded_chain


def test_a_sessions_info_is_what_its_events_say(log: EventLog) -> None:
    chain = EventChain("task-17/seed-3")
    chain.seed(
        "desk",
        task_id="17",
        sample_id="sample",
        group_id="group",
        policy="p-1",
        reducer="transcript",
        reducer_version="2",
        state_coverage="none",
        writer=log.writer_id,
    )
    chain.call()
    chain.returned(reward=0.25)
    append_all(log, chain.events)
    info = log.session_info("task-17/seed-3")
    assert info[:9] == (
        *("task-17/seed-3", "desk", "17", "sample", "group", "p-1", "transcript", "2", "none"),
    )
    assert (info.step_count, info.attempt, info.status) == (3, 1, "open")
    assert (info.writer, info.reward, info.reward_from) == (log.writer_id, 0.25, "steps")
    assert info.first_time == chain.events[0].event.time
    assert info.last_time == chain.events[-1].event.time
    assert info.head == chain.head
    assert (info.parent_session, info.parent_step, info.error) == (None, None, None)
    assert list(log.list_sessions()) == [info]


@pytest.mark.parametrize("reward", [math.nan, math.inf, -math.inf, -0.0, 5e-324, 0.1, 1e308])
def test_rewards_are_kept_to_the_bit(log: EventLog, reward: float) -> None:
    chain = seeded_chain(log, "s")
    append_all(log, [chain.verified(reward)])
    found = log.session_info("s").reward
    assert found is not None
    assert found.hex() == reward.hex()
    listed = next(log.list_sessions()).reward
    assert listed is not None
    assert listed.hex() == reward.hex()


def test_no_reward_is_not_reward_zero(log: EventLog) -> None:
    seeded_chain(log, "s")
    info = log.session_info("s")
    assert (info.reward, info.reward_from) == (None, None)


def test_the_reward_follows_corrections_and_rewinds(log: EventLog) -> None:
    chain = seeded_chain(log, "s")
    append_all(log, [chain.verified(1.0), chain.verified(0.5, supersedes_step=5)])
    assert log.session_info("s").reward == 0.5
    append_all(log, [chain.verified(None, supersedes_step=6)])
    assert log.session_info("s").reward is None
    log.take_over(["s"], stands_on={"s": chain.events[5].digest}, reason="x")
    assert log.session_info("s").reward == 1.0
    log.take_over(["s"], stands_on={"s": chain.events[2].digest}, reason="x")
    assert log.session_info("s").reward is None


def test_a_rewound_sum_of_step_rewards_is_that_of_the_line(log: EventLog) -> None:
    chain = seeded_chain(log, "s", calls=0)
    for number in range(700):
        chain.call()
        chain.returned(reward=float(number))
    append_all(log, chain.events[1:])
    assert log.session_info("s").reward == sum(range(700))
    for calls in (650, 256, 128, 127, 1, 0):
        stands_on = chain.events[2 * calls].digest
        log.take_over(["s"], stands_on={"s": stands_on}, reason="x")
        expected = float(sum(range(calls))) if calls else None
        assert log.session_info("s").reward == expected
    assert list(log.find_damage()) == []


def test_a_branchs_info_goes_on_from_its_parents(log: EventLog) -> None:
    parent = EventChain("s")
    parent.seed("desk", task_id="17", writer=log.writer_id)
    for number in range(400):
        parent.call()
        parent.returned(reward=float(number))
    append_all(log, parent.events)
    for fork_step in (800, 600, 512, 510, 2):
        base = parent.events[fork_step]
        branch = EventChain(f"b{fork_step}", seed=1)
        head = LineHead("s", fork_step, 1, base.digest)
        append_all(log, [branch.forked(head)])
        info = log.session_info(f"b{fork_step}")
        assert (info.environment, info.task_id) == ("desk", "17")
        assert (info.parent_session, info.parent_step) == ("s", fork_step)
        assert info.step_count == fork_step + 2
        assert info.reward == float(sum(range(fork_step // 2)))
        assert info.first_time == parent.events[0].event.time
    assert list(log.find_damage()) == []


def test_a_branch_of_nothing_is_listed_and_found_broken(log: EventLog) -> None:
    branch = EventChain("b", seed=1)
    append_all(log, [branch.forked(LineHead("nobody", 4, 1, bytes(32)))])
    assert [info.session_id for info in log.list_sessions()] == ["b"]
    assert [finding.error for finding in log.find_damage(["b"])] == ["LinkBrokenError"]


@pytest.mark.parametrize("status", ["open", "closed", "lost", "released"])
def test_every_status_is_told(log: EventLog, status: str) -> None:
    chain = seeded_chain(log, "s")
    if status == "closed":
        append_all(log, [chain.closed()])
    elif status == "lost":
        append_all(log, [chain.append(SessionLost("host gone"))])
    elif status == "released":
        log.release("s")
    assert log.session_info("s").status == status
    for asked in ("open", "closed", "lost", "released"):
        found = list(log.list_sessions(SessionFilter(status=asked)))
        assert len(found) == (asked == status)


def _filtered(log: EventLog) -> None:
    for number in range(12):
        chain = EventChain(f"{'ab'[number % 2]}/{number:02}")
        chain.seed(
            ("desk", "shop")[number % 2],
            task_id=str(number % 3),
            sample_id=None if number % 2 else f"s{number}",
            group_id=f"g{number % 4}",
            policy="p" if number > 6 else None,
            writer=log.writer_id,
        )
        if number < 8:
            chain.verified(math.nan if number == 7 else number / 10)
        append_all(log, chain.events)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (SessionFilter(), range(12)),
        (SessionFilter(environment="desk"), range(0, 12, 2)),
        (SessionFilter(task_id="1"), (1, 4, 7, 10)),
        (SessionFilter(sample_id="s4"), (4,)),
        (SessionFilter(group_id="g3"), (3, 7, 11)),
        (SessionFilter(policy="p"), (7, 8, 9, 10, 11)),
        (SessionFilter(writer="nobody"), ()),
        (SessionFilter(id_prefix="b/0"), (1, 3, 5, 7, 9)),
        (SessionFilter(id_prefix=""), range(12)),
        (SessionFilter(reward_min=0.4), (4, 5, 6)),
        (SessionFilter(reward_max=0.2), (0, 1, 2)),
        (SessionFilter(reward_min=0.2, reward_max=0.3), (2, 3)),
        (SessionFilter(environment="shop", task_id="0", group_id="g1"), (9,)),
        (SessionFilter(last_time_min=0, last_time_max=5), ()),
        (SessionFilter(last_time_min=1, last_time_max=2**62), range(12)),
        (SessionFilter(last_time_min=-(2**80), last_time_max=2**80), range(12)),
        (SessionFilter(last_time_max=-(2**80)), ()),
        (SessionFilter(environment="\udcff"), ()),
        (SessionFilter(id_prefix="\udcff"), ()),
        (SessionFilter(id_prefix="b/\ud800"), ()),
    ],
)
def test_filters(log: EventLog, where: SessionFilter, expected: range | tuple[int, ...]) -> None:
    _filtered(log)
    found = [int(info.session_id.split("/")[1]) for info in log.list_sessions(where)]
    assert found == list(expected)


def test_ids_are_filtered_by_exact_prefix(log: EventLog) -> None:
    ids = ["a", "a%", "a_b", "ab", "a\U0010ffff", "a\U0010ffffz", "b", "A", "\ud7ff", "\ue000"]
    for session_id in ids:
        seeded_chain(log, session_id, calls=0)
    for prefix in [*ids, "a\u0010", "z"]:
        found = [info.session_id for info in log.list_sessions(SessionFilter(id_prefix=prefix))]
        assert found == [each for each in ids if each.startswith(prefix)]


def test_sessions_are_listed_in_the_order_they_began(log: EventLog) -> None:
    chains = [seeded_chain(log, name, calls=0) for name in ("c", "a", "d", "b")]
    append_all(log, [chains[2].call()])
    assert [info.session_id for info in log.list_sessions()] == ["c", "a", "d", "b"]


def test_many_sessions_are_listed_whole(log: EventLog) -> None:
    futures = []
    for number in range(2_500):
        chain = EventChain(f"s{number}")
        futures.append(log.submit_events(chain.session_id, [chain.seed()], expected_step=-1))
    for future in futures:
        future.result()
    assert len({info.session_id for info in log.list_sessions()}) == 2_500


def test_a_sound_log_has_no_damage(log: EventLog) -> None:
    assert list(log.find_damage()) == []
    _filtered(log)
    chain = seeded_chain(log, "s", calls=300)
    blob = Content(OCTET_STREAM, BlobRef(bytes(range(32)), 5_000_000))
    append_all(log, [chain.call(arguments=blob), chain.returned(result=blob)])
    log.take_over(["s"], stands_on={"s": chain.events[7].digest}, reason="x")
    log.release("s")
    branch = EventChain("branch", seed=1)
    append_all(log, [branch.forked(chain.head, writer=log.writer_id), branch.call()])
    log.commit_cut("follower", log.end_cut())
    assert list(log.find_damage()) == []
    assert list(log.find_damage(["s", "branch"])) == []
    with pytest.raises(SessionNotFoundError):
        list(log.find_damage(["nobody"]))


@pytest.mark.parametrize("name", ["\udcff", "", "a\nb", "x" * 256, "a\x00"])
def test_an_id_that_no_session_can_have_is_not_found(log: EventLog, name: str) -> None:
    seeded_chain(log, "s")
    with pytest.raises(SessionNotFoundError):
        log.session_info(name)
    for read in (log.read_session, log.read_records, lambda each: log.find_damage([each])):
        with pytest.raises(SessionNotFoundError):
            list(read(name))
