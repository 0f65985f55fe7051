"""Calls as rows: paired by step, whatever their call ids are (public case D11)."""

import json
import random

import pytest

from eventlog.call_view import CallRow, in_order_made, pair_calls
from eventlog.content import APPLICATION_JSON, TEXT_PLAIN, Content
from eventlog.event import Event, ToolCalled
from eventlog.session_line import SessionLine, nothing_known
from tests.support.data import data_path
from tests.support.events import EventChain
from tests.support.scale import scaled


def events_of(chain: EventChain) -> list[Event]:
    return [encoded.event for encoded in chain.events]


def text(value: str) -> Content:
    return Content(TEXT_PLAIN, value.encode())


def summary(row: CallRow) -> tuple[int, int | None, str, Content | None]:
    return row.call_step, row.return_step, row.status, row.result


def test_a_call_and_its_return_are_one_row() -> None:
    chain = EventChain("s")
    chain.seed()
    called = chain.call("refund", call_id="c1", policy="p7", effects="external").event
    returned = chain.returned(1, "error", reward=-0.5, duration_us=12, error_type="KeyError").event
    (row,) = pair_calls(events_of(chain))
    assert isinstance(called.body, ToolCalled)
    assert row == CallRow(
        session_id="s",
        call_step=1,
        return_step=2,
        tool="refund",
        call_id="c1",
        status="error",
        arguments=called.body.arguments,
        result=text("done"),
        reward=-0.5,
        duration_us=12,
        error_type="KeyError",
        effects="external",
        policy="p7",
        actor="agent",
        call_time=called.time,
        return_time=returned.time,
        duplicate_of=None,
    )


def test_calls_that_never_returned_are_open_and_come_last() -> None:
    chain = EventChain("s")
    chain.seed()
    for tool in ("a", "b", "c"):
        chain.call(tool)
    chain.returned(2)
    assert [summary(row) for row in pair_calls(events_of(chain))] == [
        (2, 4, "ok", text("done")),
        (1, None, "open", None),
        (3, None, "open", None),
    ]


def test_one_call_id_for_every_call_keeps_every_result() -> None:
    """D11: a server gives all calls one id, and parallel calls return out of order."""
    chain = EventChain("s")
    chain.seed()
    for _ in range(3):
        chain.call("search", call_id="call_0")
    for called_step in (3, 1, 2):
        chain.returned(called_step, result=text(f"for {called_step}"))
    rows = sorted(pair_calls(events_of(chain)), key=in_order_made)
    assert [summary(row) for row in rows] == [
        (1, 5, "ok", text("for 1")),
        (2, 6, "ok", text("for 2")),
        (3, 4, "ok", text("for 3")),
    ]


def test_calls_equal_in_id_tool_and_arguments_are_no_duplicates_to_the_line() -> None:
    """D11: only the same bytes are a duplicate; the place in the line tells equal calls apart."""
    chain = EventChain("s")
    chain.seed()
    for _ in range(4):
        chain.call("search", call_id="call_0")
        chain.returned()
    line = SessionLine("s", nothing_known)
    for encoded in chain.events:
        assert line.accept(encoded.event, encoded.digest).kind == "accepted"
    assert line.state.counts.duplicates == 0
    assert len(list(pair_calls(events_of(chain)))) == 4


def test_a_retry_is_a_row_of_its_own_that_names_what_it_repeats() -> None:
    chain = EventChain("s")
    chain.seed()
    chain.call("refund", idempotency_key="k")
    chain.returned()
    chain.call("refund", idempotency_key="k")
    chain.returned(duplicate_of=2)
    assert [(row.call_step, row.duplicate_of) for row in pair_calls(events_of(chain))] == [
        (1, None),
        (3, 2),
    ]


def test_a_second_return_and_a_return_of_nothing_change_no_row() -> None:
    chain = EventChain("s")
    chain.seed()
    chain.call("slow")
    chain.returned(1, "timeout")
    chain.returned(1, "ok")
    chain.returned(0, "ok")
    chain.returned(77, "ok")
    assert [summary(row) for row in pair_calls(events_of(chain))] == [
        (1, 2, "timeout", text("done"))
    ]


def test_a_branch_shows_its_prefix_and_answers_a_call_made_before_the_fork() -> None:
    parent = EventChain("s")
    parent.seed()
    parent.call("early")
    fork_head = parent.head
    branch = EventChain("s/B")
    branch.forked(fork_head)
    branch.returned(1)
    branch.call("late")
    prefix = events_of(parent)
    rows = list(pair_calls([*prefix, *events_of(branch)]))
    assert [(row.session_id, row.call_step, row.return_step) for row in rows] == [
        ("s", 1, 3),
        ("s/B", 4, None),
    ]


@pytest.mark.parametrize("seed", range(scaled(50, 1_000)))
def test_every_call_is_one_row_and_memory_is_the_open_ones(seed: int) -> None:
    rng = random.Random(seed)
    chain = EventChain("s", seed)
    chain.seed()
    open_steps: list[int] = []
    returned: dict[int, int] = {}
    for _ in range(rng.randrange(80)):
        if open_steps and rng.random() < 0.5:
            step = open_steps.pop(rng.randrange(len(open_steps)))
            chain.returned(step)
            returned[step] = chain.head.step
        else:
            chain.call("t", call_id=rng.choice(("x", "y", None)))
            open_steps.append(chain.head.step)
    rows = list(pair_calls(events_of(chain)))
    assert {row.call_step: row.return_step for row in rows if row.return_step} == returned
    assert [row.call_step for row in rows if row.return_step is None] == open_steps
    answered = [row.return_step for row in rows if row.return_step is not None]
    assert answered == sorted(answered)


@pytest.mark.parametrize("trial", [0, 1])
def test_the_airline_sessions_keep_every_result(trial: int) -> None:
    """D11 on recorded sessions: ids repeat, some inside one session; no result is lost."""
    repeated = 0
    for line in _airline_lines(trial):
        messages = json.loads(line)["traj"]
        chain = EventChain("s")
        chain.seed()
        waiting: dict[str, list[int]] = {}
        expected: list[tuple[str, str]] = []
        for message in messages:
            for call in message.get("tool_calls") or ():
                repeated += call["id"] in waiting
                arguments = Content(APPLICATION_JSON, call["function"]["arguments"].encode())
                chain.call(call["function"]["name"], call_id=call["id"], arguments=arguments)
                waiting.setdefault(call["id"], []).append(chain.head.step)
            if message["role"] == "tool":
                step = waiting[message["tool_call_id"]].pop(0)
                chain.returned(step, result=text(message["content"]))
                expected.append((message["name"], message["content"]))
        rows = [row for row in pair_calls(events_of(chain)) if row.return_step is not None]
        assert [(row.tool, _text_of(row)) for row in rows] == expected
    assert repeated > 0


def _text_of(row: CallRow) -> str:
    assert row.result is not None
    assert isinstance(row.result.data, bytes)
    return row.result.data.decode()


def _airline_lines(trial: int) -> list[str]:
    folder = data_path("traces", "tau_bench_airline")
    paths = sorted(folder.glob(f"gpt-4o-airline.trial{trial}.jsonl"))
    return [line for path in paths for line in path.read_text(encoding="utf-8").splitlines()]
