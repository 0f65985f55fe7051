"""`steplog sessions`: its rows, and each filter."""

import math
import time
from pathlib import Path

import pytest

from tests.support.command import Command
from tests.support.imported import chat_record, said, write_lines
from tests.support.own_sessions import own_session, training_session

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
    "policies",
    "policies_more",
    "training_session",
    "training_step",
    "voided",
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
        "policies": ["p1"],
        "policies_more": False,
        "training_session": None,
        "training_step": None,
        "voided": None,
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
    [
        *(["--status", "gone"], ["--since", "yesterday"], ["--idle", "soon"]),
        *(["--reward-min", "much"], ["--policy", ".."], ["--policy", "1..2..3"]),
        *(["--training-step", "x..2"], ["--training-step", "-1"], ["--training-step", "5..2"]),
        *(["--policy", "5..2"], ["--policy", "12~3..12~2"], ["--policy", "b..a"]),
        *(["--policy", "5..a"], ["--policy", "a..5"]),
        *(["--void", "--policy", "1"], ["--void", "--reason", "r"]),
        *(["--void", "--reason", "r", "--not-voided"], ["--reason", "r", "--policy", "1"]),
        ["--fence", "--policy", "1"],
    ],
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


def test_steplogs_own_sessions_are_not_before_the_users(several: Command) -> None:
    """A training keeps a session of its own for each save: they hid those of the environments."""
    users = [row["session"] for row in several.rows("sessions")]
    with several.open() as ws:
        training_session(ws, "run-1").close()
        own_session(ws, "checkpoint/0", "steplog.checkpoint", training="run-1").close()
    own, told = ["run-1", "checkpoint/0"], "left out: 2 sessions in which steplog keeps its own"
    for options, found, left_out in (
        ([], users, told),
        (["--all"], [*users, *own], None),
        (["--status", "closed", "--all"], ["a/closed", "a/nan", "b/steps", *own], None),
        (["--training", "run-1"], [], "left out: 1 session in which steplog keeps its own"),
        (["--environment", "steplog.checkpoint"], ["checkpoint/0"], None),
        (["--prefix", "run"], ["run-1"], None),
    ):
        ran = several("sessions", *options, "--json")
        assert ran.code == 0
        assert [row["session"] for row in ran.rows] == found, options
        assert (left_out in ran.err and "--all lists" in ran.err) if left_out else not ran.err
    assert several("-q", "sessions").err == ""


@pytest.fixture
def versions(steplog: Command) -> Command:
    """Sessions of two trainings and of policy versions 11 to 13."""
    with steplog.open() as ws:
        for number in (11, 12, 13):
            with ws.record(
                f"s{number}",
                environment="desk",
                policy=number,
                training=f"run-{number % 2}",
                training_step=number * 10,
            ) as session:
                session.record_message("assistant", "hi", policy=number + 1)
        ws.record("open", environment="desk", policy=13)
    return steplog


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (["--policy", "12"], "s11 s12"),
        (["--policy", "13..13"], "s12 s13 open"),
        (["--policy", "14.."], "s13"),
        (["--policy", "..11"], "s11"),
        (["--policy", "12~1..12"], ""),
        (["--policy", "13..13~1"], "s12 s13 open"),
        (["--policy", "2..9"], ""),
        (["--training", "run-1"], "s11 s13"),
        (["--training", "run-1", "--policy", "12"], "s11"),
        (["--training-step", "120"], "s12"),
        (["--training-step", "..120"], "s11 s12"),
        (["--training-step", "111..130"], "s12 s13"),
        (["--voided"], ""),
        (["--not-voided"], "s11 s12 s13 open"),
    ],
)
def test_trainings_and_versions(versions: Command, options: list[str], found: str) -> None:
    rows = versions.rows("sessions", *options)
    assert [row["session"] for row in rows] == found.split()


def test_a_row_says_what_it_was_recorded_for(versions: Command) -> None:
    row = versions.rows("sessions", "--prefix", "s11")[0]
    assert (row["training_session"], row["training_step"]) == ("run-1", 110)
    assert (row["policy"], row["policies"], row["policies_more"]) == ("11", ["11", "12"], False)
    headings, line = versions("sessions", "--prefix", "s11").lines
    assert dict(zip(headings, line, strict=True))["POLICY"] == "11, 12"


def test_sessions_of_a_version_are_voided_and_open_ones_left(versions: Command) -> None:
    asked = ("sessions", "--policy", "13..14", "--void", "--reason", "it cheats")
    ran = versions("--json", *asked)
    assert (ran.code, ran.err) == (6, "voided 2, left 1\n")
    s12, s13, left = ran.rows
    assert (s12, s13) == (
        {"session": "s12", "voided": 4, "policies": ["12", "13"], "left": None},
        {"session": "s13", "voided": 4, "policies": ["13", "14"], "left": None},
    )
    assert (left["session"], left["voided"]) == ("open", None)
    assert "--fence" in left["left"]
    assert "fence=True" not in left["left"]
    assert [row["session"] for row in versions.rows("sessions", "--voided")] == ["s12", "s13"]
    ran = versions(*asked, "--fence")
    assert (ran.code, ran.err) == (0, "")
    assert [line[:3] for line in ran.lines] == [
        ["SESSION", "VOIDED", "POLICY"],
        ["open", "step 2", "13"],
    ]
    ran = versions(*asked, "--fence")
    assert (ran.code, ran.out, ran.err) == (0, "", "no session passes that is not voided yet\n")


def test_a_voided_session_is_shown_as_such(versions: Command) -> None:
    assert versions("sessions", "--policy", "13", "--void", "--reason", "r").code == 6
    headings, line = versions("sessions", "--prefix", "s12").lines
    assert dict(zip(headings, line, strict=True))["STATUS"] == "closed VOIDED"
    assert versions.rows("sessions", "--prefix", "s12")[0]["voided"] == 4
    assert "VOIDED at step 4" in versions("show", "s12").err
    assert "VOIDED" not in versions("show", "s11").err
