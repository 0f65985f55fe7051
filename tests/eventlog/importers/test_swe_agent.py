"""SWE-agent trajectories: actions, observations, the agent's state, files with only a history."""

import json
from pathlib import Path
from typing import Any

import pytest

from eventlog.content import Content
from tests.support.imported import Imported, bodies, called, notes, said


@pytest.fixture
def here() -> Imported:
    return Imported()


def write(path: Path, record: object) -> Path:
    path.write_text(json.dumps(record, indent=2))
    return path


def step(action: str, observation: object, **more: Any) -> dict[str, Any]:
    thought = f"I will {action}"
    return {
        "action": action,
        "observation": observation,
        "response": thought,
        "thought": thought,
        **more,
    }


def test_a_trajectory_is_messages_actions_observations_and_agent_states(
    here: Imported, tmp_path: Path
) -> None:
    record = {
        "environment": "swe_main",
        "trajectory": [
            step("ls\n", "a\r\nb", state='{"open_file": "n/a"}\n', execution_time=0.25),
            step("123", "", state={"open_file": "/x"}, thought="other"),
        ],
        "history": [
            said("system", "s", agent="main"),
            said("user", "issue", agent="main"),
            said("assistant", "I will ls\n"),
        ],
        "info": {"submission": "diff", "exit_status": "submitted"},
        "replay_config": {"problem_statement": {"id": "repo__1"}},
    }
    outcome = here.take_one(write(tmp_path / "a.traj", record))
    events = here.events(outcome.session_id)
    assert outcome.warnings == ()
    assert str(outcome.session_id).startswith("swe-agent/repo__1/")
    assert (outcome.state, outcome.format) == ("none", "swe-agent")
    assert [event.kind for event in events] == [
        "session_seeded",
        "message_added",
        "message_added",
        "message_added",
        "tool_called",
        "tool_returned",
        "annotated",
        "message_added",
        "tool_called",
        "tool_returned",
        "annotated",
        "annotated",
        "annotated",
        "annotated",
        "annotated",
        "session_closed",
    ]
    assert bodies(events, "session_seeded")[0].environment == "swe_main"
    assert [each.role for each in bodies(events, "message_added")] == [
        "system",
        "user",
        "assistant",
        "assistant",
    ]
    actions = bodies(events, "tool_called")
    assert [each.tool for each in actions] == ["action", "action"]
    assert [each.arguments for each in actions] == [
        Content("text/plain", b"ls\n"),
        Content("text/plain", b"123"),
    ]
    results = bodies(events, "tool_returned")
    assert [each.result.data for each in results] == [b"a\r\nb", b""]
    assert [each.duration_us for each in results] == [250_000, 0]
    states = notes(events, "agent_state")
    assert [(each.about_step, each.value) for each in states] == [
        (5, Content("application/json", b'{"open_file": "n/a"}\n')),
        (9, Content("application/json", b'{\n        "open_file": "/x"\n      }')),
    ]
    assert here.value(notes(events, "submission")[0].value) == "diff"
    assert here.value(notes(events, "info")[0].value) == {"exit_status": "submitted"}
    assert here.value(notes(events, "history")[0].value) == record["history"]
    assert here.value(notes(events, "record")[0].value) == {
        "environment": "swe_main",
        "trajectory": [{"execution_time": 0.25}, {"thought": "other"}],
        "replay_config": record["replay_config"],
    }


def test_steps_without_an_action_or_an_observation_lose_nothing(
    here: Imported, tmp_path: Path
) -> None:
    record = {
        "trajectory": [
            step("", "model gave no action"),
            step("exit", None),
            {"action": "ls"},
            {"observation": "late"},
        ]
    }
    outcome = here.take_one(write(tmp_path / "a.traj", record))
    events = here.events(outcome.session_id)
    assert [here.value(note.value) for note in notes(events, "observation")] == [
        "model gave no action",
        "late",
    ]
    assert len(bodies(events, "tool_called")) == 2
    assert bodies(events, "tool_returned") == []
    assert outcome.warnings == ("calls without a result, which stay open: 2 (steps 4, 5)",)


def test_a_file_with_only_a_history_is_read_with_its_tool_calls(
    here: Imported, tmp_path: Path
) -> None:
    history = [
        said("user", "issue", agent="main", message_type="observation"),
        {**called("c1", "find_file", '{"file_name":"a.py"}'), "content": "look", "agent": "main"},
        said("tool", "found", tool_call_ids=["c1"], agent="main"),
    ]
    outcome = here.take_one(write(tmp_path / "a.traj", {"history": history}))
    events = here.events(outcome.session_id)
    assert outcome.warnings == ()
    (call,) = bodies(events, "tool_called")
    assert (call.tool, call.arguments.data) == ("find_file", b'{"file_name":"a.py"}')
    assert bodies(events, "tool_returned")[0].called_step == 3
    assert here.value(notes(events, "record")[0].value)["history"][2] == {"agent": "main"}


def test_one_result_for_several_calls_is_given_to_each(here: Imported, tmp_path: Path) -> None:
    calls = called("c1", "f")["tool_calls"] + called("c2", "g")["tool_calls"]
    history = [
        said("assistant", "both", tool_calls=calls),
        said("tool", "r", tool_call_ids=["c1", "c2"]),
    ]
    outcome = here.take_one(write(tmp_path / "a.traj", {"history": history}))
    events = here.events(outcome.session_id)
    assert [each.called_step for each in bodies(events, "tool_returned")] == [2, 3]
    assert "one result for 2 calls" in outcome.warnings[0]


@pytest.mark.parametrize(
    ("config", "task"),
    [
        ({"problem_statement": {"id": "p"}}, "p"),
        ('{"problem_statement": {"id": "p"}}', "p"),
        ("not JSON", "-"),
        ("[1]", "-"),
        ({"problem_statement": "text"}, "-"),
        (None, "-"),
    ],
)
def test_the_task_id_comes_from_the_record_and_never_from_the_path(
    here: Imported, tmp_path: Path, config: object, task: str
) -> None:
    record = {"history": [said("user", "x")], "replay_config": config}
    outcome = here.take_one(write(tmp_path / "django-1.traj", record))
    assert str(outcome.session_id).split("/")[1] == task


def test_a_cut_document_imports_nothing_and_is_told(here: Imported, tmp_path: Path) -> None:
    path = write(tmp_path / "a.traj", {"history": [said("user", "x" * 100)]})
    whole = path.read_bytes()
    for cut in range(1, len(whole)):
        path.write_bytes(whole[:cut])
        (outcome,) = here.take(path)
        kept_apart = len(whole[:cut].removesuffix(b"\n"))
        assert (outcome.stump, outcome.byte_offset, outcome.byte_count) == (True, 0, kept_apart)
    assert list(here.log.list_sessions()) == []


@pytest.mark.parametrize(
    ("record", "says"),
    [
        ({"trajectory": []}, "`trajectory` or a `history`"),
        ({"trajectory": [1]}, "$.trajectory[0] should be an object"),
        ({"trajectory": {}, "history": []}, "$.trajectory should be a list"),
        ({"history": [{"content": "x"}]}, "$.history[0] has no 'role'"),
        ({"history": [], "trajectory": [{}], "environment": 1}, "$.environment should be text"),
    ],
)
def test_a_document_of_the_wrong_shape_names_the_place(
    here: Imported, tmp_path: Path, record: dict[str, Any], says: str
) -> None:
    (outcome,) = here.take(write(tmp_path / "a.traj", record), format="swe-agent")
    assert says in str(outcome.problem)
