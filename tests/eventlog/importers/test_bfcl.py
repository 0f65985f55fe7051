"""BFCL sessions: turns, steps, and a state that is known exactly as far as the trace tells it."""

import json
from pathlib import Path
from typing import Any

import pytest

from eventlog.canonical import decode, digest
from eventlog.content import Content
from eventlog.event import StateChange, StateUnknown
from eventlog.state_patch import apply
from tests.support.imported import Imported, bodies, notes, write_lines


@pytest.fixture
def here() -> Imported:
    return Imported()


def step(turn: int, tool: str, result: object = None, **more: Any) -> dict[str, Any]:
    return {"turn": turn, "server": "FS", "tool": tool, "args": {}, "result": result, **more}


def session(*steps: dict[str, Any], turns: int = 1, **more: Any) -> dict[str, Any]:
    asked = [[f"turn {number}"] for number in range(turns)]
    return {"id": "b_1", "user_turns": asked, "steps": list(steps), **more}


def test_turns_stand_before_their_steps_and_steps_are_calls_and_returns(
    here: Imported, tmp_path: Path
) -> None:
    record = session(step(0, "cd"), step(0, "ls"), step(2, "rm"), turns=4)
    events = here.events(here.take_one(write_lines(tmp_path / "a.jsonl", [record])).session_id)
    told = []
    for event in events:
        if event.kind == "message_added":
            told.append(here.value(event.body.content))  # type: ignore[union-attr]
        elif event.kind == "tool_called":
            told.append(event.body.tool)  # type: ignore[union-attr]
    assert told == ["turn 0", "cd", "ls", "turn 1", "turn 2", "rm", "turn 3"]
    assert [event.actor for event in events if event.kind == "tool_returned"] == ["tool:FS"] * 3
    assert [each.called_step for each in bodies(events, "tool_returned")] == [2, 4, 8]


def test_arguments_and_results_keep_their_exact_text(here: Imported, tmp_path: Path) -> None:
    line = (
        '{"id":"b","user_turns":[],"steps":[{"turn":0,"tool":"f","args":{"x" : 1.0},"result":null},'
        '{"turn":0,"tool":"g","args":{},"result":"text"},'
        '{"turn":0,"tool":"h","args":{},"result":{"a": [1, 1.0]}}]}'
    )
    events = here.events(here.take_one(write_lines(tmp_path / "a.jsonl", [line])).session_id)
    assert bodies(events, "tool_called")[0].arguments == Content("application/json", b'{"x" : 1.0}')
    assert [each.result.data for each in bodies(events, "tool_returned")] == [
        b"null",
        b'"text"',
        b'{"a": [1, 1.0]}',
    ]


BIG = {str(number): number for number in range(200)}


def test_the_state_is_known_at_each_step_as_the_trace_tells_it(
    here: Imported, tmp_path: Path
) -> None:
    states = [{"cwd": "/", **BIG}, {"cwd": "/a", **BIG}, {"tiny": 1}, {"tiny": 1}]
    record = session(
        step(0, "one", state=states[0], state_sha256="h0", state_unchanged=False),
        step(0, "same", state_sha256="h0", state_unchanged=True),
        step(0, "two", state=states[1], state_sha256="h1", state_unchanged=False),
        step(0, "three", state=states[2], state_sha256="h2", state_unchanged=False),
        step(0, "told again", state=states[3], state_sha256="h2", state_unchanged=False),
        initial_config={"root": {}},
    )
    outcome = here.take_one(write_lines(tmp_path / "a.jsonl", [record]))
    events = here.events(outcome.session_id)
    assert outcome.state == "full"
    seeded = bodies(events, "session_seeded")[0]
    assert (seeded.reducer, seeded.state_coverage) == ("captured", "full")
    assert here.value(seeded.initial_state) == {"root": {}}
    assert seeded.metadata["initial_state"] == "initial_config"
    first_return = bodies(events, "tool_returned")[0].called_step + 1
    assert outcome.warnings == (
        f"steps 0 to {first_return - 1}: the state is initial_config, not a dump of it",
    )
    assert here.data(seeded.request) == b'{"root": {}}'
    state: object = here.value(seeded.initial_state)
    after = []
    for event in events:
        if isinstance(event.state_change, StateChange):
            state = apply(decode(here.data(event.state_change.patch)), state)
            assert digest(state) == event.state_change.digest
        if event.kind == "tool_returned":
            after.append(json.loads(json.dumps(state)))
    assert after == [states[0], states[0], *states[1:]]
    changes = [event.state_change for event in events if event.kind == "tool_returned"]
    assert [change is not None for change in changes] == [True, False, True, True, False]
    patches = [here.data(each.patch) for each in changes if isinstance(each, StateChange)]
    assert len(patches[1]) < 60, "a small change of a large state is a diff"
    assert decode(patches[2]) == [["set", [], {"tiny": 1}]]


def test_a_step_that_tells_no_state_leaves_it_unknown_until_the_next(
    here: Imported, tmp_path: Path
) -> None:
    record = session(
        step(0, "known", state={"n": 1}, state_sha256="h1"),
        step(0, "changed", state_sha256="h2"),
        step(0, "still", state_sha256="h2"),
        step(0, "silent"),
        step(0, "back", state={"n": 1}, state_sha256="h1"),
        step(0, "told unchanged", state_unchanged=True),
    )
    events = here.events(here.take_one(write_lines(tmp_path / "a.jsonl", [record])).session_id)
    seed = events[0]
    assert isinstance(seed.state_change, StateUnknown), "no initial_config: nothing is known yet"
    changes = [event.state_change for event in events if event.kind == "tool_returned"]
    assert [type(change) for change in changes] == [
        StateChange,
        StateUnknown,
        type(None),
        type(None),
        StateChange,
        type(None),
    ]


def test_long_context_has_no_state_but_its_last_one_noted(here: Imported, tmp_path: Path) -> None:
    record = session(
        step(0, "a", state_sha256="h0"),
        step(0, "b", state={"early": 1}),
        step(0, "c", state_sha256="h1", state={"n": 1.0}),
        initial_config={"root": {}},
    )
    outcome = here.take_one(write_lines(tmp_path / "a.jsonl", [record]))
    events = here.events(outcome.session_id)
    assert outcome.state == "none"
    assert {event.state_change for event in events} == {None}
    seeded = bodies(events, "session_seeded")[0]
    assert (seeded.reducer, seeded.initial_state) == ("transcript", None)
    assert here.data(notes(events, "final_state")[0].value) == b'{"n": 1.0}'
    left = here.value(notes(events, "record")[0].value)
    assert left["steps"][1]["state"] == {"early": 1}
    assert "state" not in left["steps"][2]


def test_what_no_event_holds_stands_in_one_annotation(here: Imported, tmp_path: Path) -> None:
    record = session(step(0, "a", state={}, state_sha256="h", i=0), servers=["FS"])
    record["user_turns"] = [["text", {"role": "user", "content": "x", "name": "Ann"}]]
    events = here.events(here.take_one(write_lines(tmp_path / "a.jsonl", [record])).session_id)
    assert here.value(notes(events, "record")[0].value) == {
        "user_turns": [[{}, {"name": "Ann"}]],
        "steps": [{"turn": 0, "server": "FS", "state_sha256": "h", "i": 0}],
        "servers": ["FS"],
    }


@pytest.mark.parametrize(
    ("record", "says"),
    [
        ({"user_turns": "x", "steps": []}, "$.user_turns should be a list"),
        ({"user_turns": ["x"], "steps": []}, "$.user_turns[0] should be a list"),
        ({"user_turns": [[1]], "steps": []}, "$.user_turns[0][0] should be an object"),
        ({"user_turns": [], "steps": [1]}, "$.steps[0] should be an object"),
        ({"user_turns": [], "steps": [{"tool": "f"}]}, "$.steps[0] has no 'args'"),
        ({"user_turns": [], "steps": [{"tool": 1, "args": {}}]}, "$.steps[0].tool should be text"),
    ],
)
def test_a_record_of_the_wrong_shape_names_the_place(
    here: Imported, tmp_path: Path, record: dict[str, Any], says: str
) -> None:
    (outcome,) = here.take(write_lines(tmp_path / "a.jsonl", [record]))
    assert says in str(outcome.problem)


@pytest.mark.parametrize("turn", [None, "1", -3, 10**30, True])
def test_odd_turn_numbers_lose_no_turn(here: Imported, tmp_path: Path, turn: object) -> None:
    record = session({**step(0, "a"), "turn": turn}, turns=3)
    events = here.events(here.take_one(write_lines(tmp_path / "a.jsonl", [record])).session_id)
    assert len(bodies(events, "message_added")) == 3
