"""`steplog sessions`: its rows, and each filter."""

import math
import time
from pathlib import Path

import pytest

from tests.support.command import Command
from tests.support.imported import chat_record, said, write_lines

NOW_US = time.time_ns() // 1_000
DAY_US = 86_400_000_000

KEYS = [
    "session",
    "environment",
    "step_count",
    "attempt",
    "status",
    "reward",
    "reward_from",
    "first_time",
    "last_time",
    "task_id",
    "sample_id",
    "group_id",
    "policy",
    "parent_session",
    "parent_step",
]


@pytest.fixture
def several(steplog: Command) -> Command:
    """Sessions that differ in what filters look at; the names say how."""
    with steplog.open() as ws:
        kinds = {"sample_id": "s1", "group_id": "g1", "policy": "p1", "task_id": "t1"}
        with ws.record("a/closed", environment="desk", **kinds) as session:
            session.record_verification(0.5, verifier="rules")
        with ws.record("a/nan", environment="desk") as session:
            session.record_verification(math.nan, verifier="rules")
        ws.record("b/open", environment="shop").record_message("user", "hello")
        ws.record("b/released", environment="shop", if_exists="new").release()
        with ws.record("b/steps", environment="shop") as session, session.call("buy", {}) as call:
            call.reward = 2
    return steplog


def test_a_row_has_these_keys_and_no_other(several: Command) -> None:
    rows = several.rows("sessions")
    assert [list(row) for row in rows] == [KEYS] * 5
    first = rows[0]
    assert first | {"first_time": 0, "last_time": 0} == {
        "session": "a/closed",
        "environment": "desk",
        "step_count": 3,
        "attempt": 1,
        "status": "closed",
        "reward": 0.5,
        "reward_from": "verified",
        "first_time": 0,
        "last_time": 0,
        "task_id": "t1",
        "sample_id": "s1",
        "group_id": "g1",
        "policy": "p1",
        "parent_session": None,
        "parent_step": None,
    }
    assert NOW_US - DAY_US < first["first_time"] <= first["last_time"] < NOW_US + DAY_US


def test_a_reward_that_json_has_no_number_for_is_named(several: Command) -> None:
    rewards = {
        row["session"]: (row["reward"], row["reward_from"]) for row in several.rows("sessions")
    }
    assert rewards == {
        "a/closed": (0.5, "verified"),
        "a/nan": ({"$float": "nan"}, "verified"),
        "b/open": (None, None),
        "b/released": (None, None),
        "b/steps": (2.0, "steps"),
    }


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ([], "a/closed a/nan b/open b/released b/steps"),
        (["--environment", "shop"], "b/open b/released b/steps"),
        (["--status", "open"], "b/open"),
        (["--status", "released"], "b/released"),
        (["--status", "lost"], ""),
        (["--task", "t1"], "a/closed"),
        (["--sample", "s1"], "a/closed"),
        (["--group", "g1"], "a/closed"),
        (["--policy", "p1"], "a/closed"),
        (["--writer", "nobody"], ""),
        (["--reward-min", "0.5"], "a/closed b/steps"),
        (["--reward-max", "0.5"], "a/closed"),
        (["--prefix", "a/"], "a/closed a/nan"),
        (["--since", "1h"], "a/closed a/nan b/open b/released b/steps"),
        (["--since", "2200-01-01"], ""),
        (["--until", "2001-01-01T00:00:00+02:00"], ""),
        (["--until", "0s"], "a/closed a/nan b/open b/released b/steps"),
        (["--idle", "0s", "--status", "open"], "b/open"),
        (["--idle", "1h"], ""),
        (["--environment", "desk", "--status", "open"], ""),
    ],
)
def test_filters(several: Command, options: list[str], found: str) -> None:
    assert [row["session"] for row in several.rows("sessions", *options)] == found.split()


@pytest.mark.parametrize(
    "options",
    [["--status", "gone"], ["--since", "yesterday"], ["--idle", "soon"], ["--reward-min", "much"]],
)
def test_a_filter_that_says_nothing_is_a_usage_error(several: Command, options: list[str]) -> None:
    ran = several("sessions", *options)
    assert (ran.code, ran.out) == (2, "")
    assert options[0] in ran.err or options[1] in ran.err


def test_a_table_for_people(several: Command) -> None:
    headings, first, *_ = several("sessions").lines
    assert headings[:5] == ["SESSION", "ENVIRONMENT", "STEPS", "ATTEMPT", "STATUS"]
    assert first[:7] == ["a/closed", "desk", "3", "1", "closed", "0.5", "verified"]
    assert [line[5] for line in several("sessions").lines[1:]] == ["0.5", "nan", "-", "-", "2"]


def test_a_branch_names_its_parent(several: Command) -> None:
    several.row("fork", "a/closed@1", "--name", "branch")
    row = several.rows("sessions", "--prefix", "branch")[0]
    assert (row["parent_session"], row["parent_step"]) == ("a/closed", 1)
    headings, line = several("sessions", "--prefix", "branch").lines
    assert dict(zip(headings, line, strict=True))["PARENT"] == "a/closed@1"


def test_a_trace_without_times_has_none(steplog: Command, tmp_path: Path) -> None:
    steplog.row("import", write_lines(tmp_path / "t.jsonl", [chat_record(1, said("user", "hi"))]))
    row = steplog.row("sessions")
    assert (row["first_time"], row["last_time"]) == (None, None)


def test_none_is_said_on_stderr(several: Command) -> None:
    assert several("sessions", "--task", "none") == (0, "", "no session passes\n")
    assert several("sessions", "--task", "none", "--quiet") == (0, "", "")


def test_a_workspace_that_is_not_there_is_not_made(steplog: Command) -> None:
    ran = steplog("sessions")
    assert (ran.code, ran.out) == (2, "")
    assert str(steplog.workspace) in ran.err
    assert not steplog.workspace.exists()
