"""`steplog show`: a session as lines, its events, one event whole, one content's bytes."""

import hashlib
import subprocess
import sys
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest

from eventlog.event import BODY_OF_KIND
from eventlog.json_form import from_json_form
from tests.support.command import BIG, Command
from tests.support.sources import ROOT

EVENT_KEYS = [
    "session",
    "step",
    "attempt",
    "kind",
    "event_id",
    "event_digest",
    "parent",
    "partition",
    "offset",
    "time",
    "actor",
    "state_change",
    "trace",
    "body",
]


def test_one_line_for_a_call_and_its_return(desk: Command) -> None:
    ran = desk("show", "desk/1")
    headings, *lines = ran.lines
    assert headings == ["STEPS", "KIND", "NAME", "CONTENT", "STATUS", "REWARD", "DURATION", "STATE"]
    told = [(line[0], line[1], line[2], line[4], line[7]) for line in lines]
    assert told == [
        ("0", "session_seeded", "desk", "-", "-"),
        ("1-2", "call", "add", "ok", "changed"),
        ("3-4", "call", "find", "error", "-"),
        ("5", "message_added", "assistant", "-", "-"),
        ("6-7", "call", "read", "ok", "-"),
        ("8", "call", "wait", "open", "-"),
        ("9", "annotated", "note, about step 2", "-", "-"),
        ("10", "verified", "rules", "-", "-"),
        ("11", "session_closed", "done", "-", "-"),
    ]
    assert lines[1][3] == '{"by": 1} -> {"n": 1.0}'
    assert lines[3][3] == "thinking\\n\\x1b[31mred", "what was recorded drives no terminal"
    assert lines[4][3] == '{"$tuple": ["big"]} -> <5000000 bytes>'
    assert lines[7][5] == "1"
    assert "desk/1: desk, 12 steps, closed, reward 1 (verified), state full" in ran.err


def test_one_step_is_one(desk: Command) -> None:
    with desk.open() as ws:
        ws.record("begun", environment="desk")
    assert "begun: desk, 1 step, " in desk("show", "begun").err


def test_every_event_with_its_own_line(desk: Command) -> None:
    headings, *lines = desk("show", "desk/1", "--events").lines
    assert headings[:4] == ["SESSION", "STEP", "ATTEMPT", "KIND"]
    assert [(line[1], line[3]) for line in lines][6:9] == [
        ("6", "tool_called"),
        ("7", "tool_returned"),
        ("8", "tool_called"),
    ]


def test_json_is_the_events(desk: Command) -> None:
    rows = desk.rows("show", "desk/1")
    assert [row["step"] for row in rows] == list(range(12))
    assert {tuple(row) for row in rows} == {tuple(EVENT_KEYS)}
    for before, after in pairwise(rows):
        assert after["parent"] == before["event_digest"]
    assert rows == desk.rows("show", "desk/1", "--events")


def test_one_event_whole(desk: Command) -> None:
    row = desk.row("show", "desk/1@2")
    assert list(row) == EVENT_KEYS
    assert (row["session"], row["step"], row["kind"], row["actor"]) == (
        "desk/1",
        2,
        "tool_returned",
        "tool",
    )
    assert UUID(row["event_id"]).version == 7
    assert row["body"]["result"] == {
        "media_type": "application/json",
        "size": 10,
        "value": {"n": {"$float": "1.0"}},
    }
    patch = row["state_change"]["patch"]
    assert patch["media_type"] == "application/vnd.steplog.patch"
    assert patch["value"] == [["set", ["n"], 1]]
    assert row["state_change"]["state_digest"] == desk.row("replay", "desk/1@2")["state_digest"]
    with desk.open() as ws:
        (record,) = ws.log.read_session("desk/1", 2, 3)
    assert row["event_digest"] == hashlib.sha256(record.data).hexdigest()


def test_a_body_has_the_fields_of_its_schema_in_the_json_form(desk: Command) -> None:
    for row in desk.rows("show", "desk/1"):
        assert list(row["body"]) == list(BODY_OF_KIND[row["kind"]]._fields)
        from_json_form(without_contents(row["body"]))
    verified = desk.row("show", "desk/1@10")["body"]
    assert verified["reward"] == {"$float": "1.0"}
    assert verified["components"] == {"policy": {"$float": "1.0"}}


def without_contents(body: dict[str, Any]) -> dict[str, Any]:
    """The body with each content's row replaced by its value."""
    return {
        name: value.get("value") if isinstance(value, dict) and "media_type" in value else value
        for name, value in body.items()
    }


def test_a_person_reads_fields_and_decoded_contents(desk: Command) -> None:
    shown = desk("show", "desk/1@2").out
    assert "kind          tool_returned\n" in shown
    assert "called_step   1\n" in shown
    assert 'result (application/json, 10 bytes):\n  {\n    "n": 1.0\n  }\n' in shown
    assert desk("show", "desk/1@4").out.endswith("result (text/plain, 4 bytes):\n  'A9'\n")
    assert "  thinking\n  \\x1b[31mred\n" in desk("show", "desk/1@5").out


def test_a_blob_over_the_limit_is_told_by_digest(desk: Command) -> None:
    content = desk.row("show", "desk/1@7")["body"]["result"]
    assert content == {
        "media_type": "text/plain",
        "size": 5_000_000,
        "blob": hashlib.sha256(BIG.encode()).hexdigest(),
    }
    assert f"<blob {content['blob']}>" in desk("show", "desk/1@7").out


def test_a_blob_within_the_limit_is_fetched(desk: Command) -> None:
    with desk.open() as ws, ws.record("blob", environment="desk") as session:
        session.record_message("user", "y" * 300_000)
    content = desk.row("show", "blob@1")["body"]["content"]
    assert content["value"] == "y" * 300_000
    assert content["blob"] == hashlib.sha256(b"y" * 300_000).hexdigest()


@pytest.mark.parametrize(
    ("step", "field", "data"), [(7, "result", BIG), (1, "arguments", '{"by": 1}')]
)
def test_one_contents_exact_bytes(desk: Command, step: int, field: str, data: str) -> None:
    command = [sys.executable, "-m", "replay.cli", "-w", str(desk.workspace)]
    command += ["show", f"desk/1@{step}", "--content", field]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, timeout=60)
    assert done.stdout == data.encode()


def test_a_content_that_is_not_there_names_those_that_are(desk: Command) -> None:
    ran = desk("show", "desk/1@2", "--content", "arguments")
    assert (ran.code, ran.out) == (2, "")
    assert "patch, result" in ran.err
    assert desk("show", "desk/1", "--content", "result").code == 2


@pytest.mark.parametrize(
    ("options", "steps"),
    [(["--kind", "tool_called"], [1, 3, 6, 8]), (["--actor", "verifier"], [10])],
)
def test_events_of_one_kind_or_actor(desk: Command, options: list[str], steps: list[int]) -> None:
    assert [row["step"] for row in desk.rows("show", "desk/1", *options)] == steps
    assert [line[1] for line in desk("show", "desk/1", "--events", *options).lines[1:]] == [
        str(step) for step in steps
    ]


def test_an_unknown_kind_names_the_kinds(desk: Command) -> None:
    ran = desk("show", "desk/1", "--kind", "tool")
    assert ran.code == 2
    assert "tool_called" in ran.err


def test_a_branch_is_shown_with_its_past(desk: Command) -> None:
    desk.row("fork", "desk/1@4", "--name", "b")
    assert [(row["session"], row["step"]) for row in desk.rows("show", "b")] == [
        *(("desk/1", step) for step in range(5)),
        ("b", 5),
    ]
    assert desk.row("show", "b@3")["session"] == "desk/1"
    assert "branch of desk/1@4" in desk("show", "b").err


def test_a_step_that_is_not_there(desk: Command) -> None:
    ran = desk("show", "desk/1@12")
    assert (ran.code, ran.out) == (5, "")
    assert ran.err == (
        "error: there is no step 12: the session's steps are 0 to 11 [session 'desk/1']\n"
        "  hint: ask for one of these\n"
    )


def test_a_session_that_is_not_there_names_near_ones(desk: Command) -> None:
    ran = desk("show", "desk/2@3")
    assert (ran.code, ran.out) == (5, "")
    assert "did you mean 'desk/1'?" in ran.err
    assert "did you mean 'desk/1'?" in desk("show", "des").err


def test_a_session_whose_name_ends_in_at_and_digits(desk: Command) -> None:
    with desk.open() as ws, ws.record("desk/1@3", environment="desk"):
        pass
    assert [row["session"] for row in desk.rows("show", "desk/1@3")] == ["desk/1@3"] * 2
    assert desk.row("show", "desk/1@3@1")["session"] == "desk/1@3"
    assert desk.row("show", "desk/1@4")["session"] == "desk/1"


def test_a_state_that_was_not_recorded_is_said_to_be_unknown(steplog: Command) -> None:
    with steplog.open() as ws, ws.record("s", environment="desk", state={"n": 1}) as session:
        session.record_tool_return(session.record_tool_call("add", {}), "done")
    change = steplog.row("show", "s@2")["state_change"]
    assert list(change) == ["unknown"]
    assert f"state         unknown: {change['unknown']}" in steplog("show", "s@2").out
    assert steplog("show", "s").lines[2][7] == "unknown"
