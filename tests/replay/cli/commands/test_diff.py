"""`steplog diff`: two states, or two sessions; equal is 0, different is 1."""

import numpy as np
import pytest

from tests.support.command import Command, record_desk


@pytest.fixture
def two(desk: Command) -> Command:
    """`desk/1`, an equal session `desk/same`, and a branch `b` that does something else."""
    with desk.open() as ws:
        record_desk(ws, "desk/same")
        with ws.resume(ws.fork("desk/1", 2, name="b")) as session, session.call("other", {"x": 1}):
            pass
    return desk


def test_two_states_of_one_session(two: Command) -> None:
    ran = two("diff", "desk/1@0", "desk/1@2", "--json")
    assert ran.code == 1
    assert ran.row == {
        "equal": False,
        "first_step": None,
        "changes": [{"op": "replace", "path": ["n"], "before": 0, "after": 1}],
    }
    assert two("diff", "desk/1@0", "desk/1@2").lines == [
        ["OP", "PATH", "BEFORE", "AFTER"],
        ["replace", "$.n", "0", "1"],
    ]


def test_equal_states_and_equal_sessions(two: Command) -> None:
    for places in (["desk/1@2", "desk/1@3"], ["desk/1", "desk/same"], ["desk/1@11", "desk/same"]):
        assert two.row("diff", *places) == {"equal": True, "first_step": None, "changes": []}
        assert two("diff", *places) == (0, "", "no difference\n")


def test_two_sessions_up_to_the_first_step_that_differs(two: Command) -> None:
    ran = two("diff", "desk/1", "b", "--json")
    assert ran.code == 1
    assert ran.row["first_step"] == 3
    assert {"op": "replace", "path": ["body", "tool"], "before": "find", "after": "other"} in (
        ran.row["changes"]
    )
    shown = two("diff", "desk/1", "b")
    assert "step 3 of the first, step 5 of the second" in shown.err
    assert ["replace", "$.body.tool", "find", "other"] in shown.lines


def test_the_two_events_that_differ_are_shown_first(two: Command) -> None:
    shown = two("diff", "desk/1", "b").out
    first, second = two("show", "desk/1@3").out, two("show", "b@5").out
    assert shown.startswith(f"desk/1@3:\n{first}\nb@5:\n{second}\nOP\tPATH")
    assert "event_digest" not in two("diff", "desk/1@0", "desk/1@2").out


def test_values_that_look_alike_are_told_exactly(steplog: Command) -> None:
    with steplog.open() as ws, ws.record("s", environment="desk", state={"n": 1.0}) as session:
        session.record_state("numpy", {"n": np.float64(1.0)})
        session.record_state("text", {"n": "1.0"})
        session.record_state("number", {"n": 1.5})
    lines = [steplog("diff", f"s@{step}", f"s@{step + 1}").lines[1] for step in range(3)]
    assert lines[0][2:] == [
        '{"$float": "1.0"}',
        '{"$array": ["scalar", "<f8", [], "AAAAAAAA8D8="]}',
    ]
    assert lines[1][3] == '"1.0"'
    assert lines[2][2:] == ['"1.0"', "1.5"]


def test_values_are_told_apart_wherever_they_stand(two: Command) -> None:
    changes = two("diff", "desk/1", "b", "--json").rows[0]["changes"]
    assert {
        "op": "add",
        "path": ["body", "arguments", "value", "x"],
        "before": None,
        "after": 1,
    } in (changes)


def test_a_session_that_goes_on_after_the_other_has_ended(two: Command) -> None:
    with two.open() as ws:
        ws.fork("desk/1", 4, name="short")
    ran = two("diff", "desk/1", "short", "--json")
    assert (ran.code, ran.row["first_step"], ran.row["changes"][0]["op"]) == (1, 5, "remove")
    assert "step 5 of the first, after the end of the second" in two("diff", "desk/1", "short").err


def test_what_is_not_there(two: Command) -> None:
    assert two("diff", "desk/1@99", "desk/1").code == 5
    assert two("diff", "desk/1", "desk/3").code == 5
    assert two("diff", "desk/1").code == 2
