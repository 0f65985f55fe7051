"""`steplog replay`: a state back, proven; parts of it; and what cannot be brought back."""

import hashlib
import random
from collections import deque
from typing import Any

import numpy as np
import pytest

from eventlog.canonical import encode
from eventlog.json_form import from_json_form
from tests.support.command import Command

KEYS = [
    "session",
    "step",
    "kind",
    "reducer",
    "state",
    "state_digest",
    "event_digest",
    "from_snapshot",
    "folded",
]


def test_a_row_has_these_keys_and_no_other(desk: Command) -> None:
    row = desk.row("replay", "desk/1", "--step", 2)
    assert list(row) == KEYS
    event = desk.row("show", "desk/1@2")
    assert row | {"state": None} == {
        "session": "desk/1",
        "step": 2,
        "kind": "tool_returned",
        "reducer": "captured",
        "state": None,
        "state_digest": event["state_change"]["state_digest"],
        "event_digest": event["event_digest"],
        "from_snapshot": None,
        "folded": 2,
    }


def test_the_state_in_the_json_form_gives_the_digest(desk: Command) -> None:
    row = desk.row("replay", "desk/1", "--step", 2)
    state = from_json_form(row["state"])
    assert state == {"n": 1, "orders": {"A1": {"price": 14}}, 3: (1, 2)}
    assert hashlib.sha256(encode(state)).hexdigest() == row["state_digest"]


def test_a_step_is_named_in_either_way_and_the_last_is_the_default(desk: Command) -> None:
    assert desk.row("replay", "desk/1@2") == desk.row("replay", "desk/1", "--step", 2)
    assert desk.row("replay", "desk/1")["step"] == 11
    assert desk.row("replay", "desk/1@2", "--step", 2)["step"] == 2
    assert desk("replay", "desk/1@2", "--step", 3).code == 2
    assert desk("replay", "desk/1", "--step", -1).code == 2


def test_snapshots_are_used_unless_refused(desk: Command) -> None:
    desk.row("snapshot", "take", "desk/1@4")
    near = desk.row("replay", "desk/1@5")
    folded = desk.row("replay", "desk/1@5", "--no-snapshots")
    assert (near["from_snapshot"], near["folded"]) == (4, 1)
    assert (folded["from_snapshot"], folded["folded"]) == (None, 5)
    assert near["state_digest"] == folded["state_digest"]


def test_a_snapshot_that_cannot_be_used_is_told_and_costs_only_time(desk: Command) -> None:
    taken = desk.row("snapshot", "take", "desk/1@4")
    (file,) = desk.workspace.rglob(taken["file"])
    file.write_bytes(b"damaged")
    ran = desk("replay", "desk/1@4", "--json")
    assert (ran.code, ran.row["from_snapshot"]) == (0, None)
    assert "snapshot not used" in ran.err
    assert taken["file"] in ran.err


@pytest.mark.parametrize(
    ("path", "part"),
    [
        ("n", 1),
        ("orders.A1.price", 14),
        ("$.orders.A1", {"price": 14}),
        ('$.orders["A1"]', {"price": 14}),
        ("[3]", {"$tuple": [1, 2]}),
        ("3.1", 2),
        ("[3][-1]", 2),
        ("$", None),
    ],
)
def test_a_part_of_the_state(desk: Command, path: str, part: Any) -> None:
    row = desk.row("replay", "desk/1@2", "--path", path)
    whole = desk.row("replay", "desk/1@2")
    assert row["state"] == (whole["state"] if part is None else part)
    assert row | {"state": None} == whole | {"state": None}


def test_a_path_goes_through_registered_types(steplog: Command) -> None:
    state = {"queue": deque(["a", {"b": 2}])}
    with steplog.open() as ws, ws.record("s", environment="desk", state=state):
        pass
    whole = steplog.row("replay", "s", "--path", "queue")["state"]
    name, _version, (_max_length, items) = whole["$type"]
    assert (name, items) == ("steplog.deque", ["a", {"b": 2}])
    assert steplog.row("replay", "s", "--path", "queue[1][1].b")["state"] == 2


@pytest.mark.parametrize("path", ["m", "orders.A2", "n.x", "[4]", "[oops]", "orders..A1", "["])
def test_a_part_that_is_not_there_says_what_is(desk: Command, path: str) -> None:
    ran = desk("replay", "desk/1@2", "--path", path)
    assert (ran.code, ran.out) == (2, "")
    assert "no part" in ran.err or "no path" in ran.err or "neither position nor key" in ran.err


def test_a_person_reads_fields_and_the_state(desk: Command) -> None:
    shown = desk("replay", "desk/1@2", "--path", "orders").out
    assert "reducer       captured\n" in shown
    assert shown.endswith('{\n  "A1": {\n    "price": 14\n  }\n}\n')


def test_a_person_reads_numbers_arrays_and_what_is_closed(steplog: Command) -> None:
    state = {
        "mass": np.float32(0.5),
        "grid": np.array([[1, 2], [3, 4]], np.int16),
        "image": np.zeros((100, 100), np.uint8),
        "rng": random.Random(3),
        "speed": 2.0,
        "queue": deque(["a"]),
    }
    with steplog.open() as ws, ws.record("s", environment="desk", state=state):
        pass
    digest = hashlib.sha256(bytes(10_000)).hexdigest()[:16]
    assert steplog("replay", "s").out.endswith(
        '{\n  "mass": 0.5,\n  "grid": <int16 array [2, 2]: [[1, 2], [3, 4]]>,\n'
        f'  "image": <uint8 array [100, 100], 10.0 KB, sha256 {digest}>,\n'
        '  "rng": <random.Random, 2.5 KB>,\n  "speed": 2.0,\n'
        '  "queue": <deque [null, ["a"]]>\n}\n'
    )
    assert from_json_form(steplog.row("replay", "s")["state"])["speed"] == 2.0  # type: ignore[index]


def test_a_path_goes_into_arrays(steplog: Command) -> None:
    state = {"grid": np.arange(6, dtype=np.int16).reshape(2, 3)}
    with steplog.open() as ws, ws.record("s", environment="desk", state=state):
        pass
    assert steplog("replay", "s", "--path", "grid[1][2]").out.endswith("\n5\n")
    assert steplog("replay", "s", "--path", "grid.-1").out.endswith(
        "<int16 array [3]: [3, 4, 5]>\n"
    )
    ran = steplog("replay", "s", "--path", "grid[2]")
    assert ran.code == 2
    assert "an array of shape [2, 3]" in " ".join(ran.err.split())
    ran = steplog("replay", "s", "--path", "grid[1][2][0]")
    assert "a number, no parts" in " ".join(ran.err.split())


def test_another_reducer(desk: Command) -> None:
    row = desk.row("replay", "desk/1", "--reducer", "transcript")
    assert row["reducer"] == "transcript"
    assert [call["tool"] for call in row["state"]["calls"]] == ["add", "find", "read", "wait"]
    assert desk("replay", "desk/1", "--reducer", "mine").code == 6


def test_a_session_without_a_state_replays_as_its_transcript(steplog: Command) -> None:
    with steplog.open() as ws, ws.record("s", environment="chat") as session:
        session.record_message("user", "hello")
    row = steplog.row("replay", "s", "--step", 1)
    assert (row["reducer"], row["state"]["messages"][0]["content"]) == ("transcript", "hello")


def test_a_step_that_is_not_there(desk: Command) -> None:
    assert desk("replay", "desk/1", "--step", 12).code == 5
    assert desk("replay", "desk/2", "--step", 1).code == 5


def test_a_state_that_was_not_recorded_names_the_nearest_that_was(steplog: Command) -> None:
    with steplog.open() as ws, ws.record("s", environment="desk", state={"n": 1}) as session:
        session.record_tool_return(session.record_tool_call("add", {}), "done")
        session.record_tool_return(session.record_tool_call("add", {}), "done", state={"n": 3})
    ran = steplog("replay", "s@3")
    assert (ran.code, ran.out) == (6, "")
    assert "last known after step 1, next known after step 4" in ran.err
    assert steplog.row("replay", "s@4")["state"] == {"n": 3}
