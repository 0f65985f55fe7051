"""NeMo Gym rollouts: items, rewards and their components, paired inputs, lists that grow."""

import json
from pathlib import Path
from typing import Any

import pytest

from eventlog.content import Content
from tests.support.imported import Imported, bodies, notes, rollout_record, write_lines


@pytest.fixture
def here() -> Imported:
    return Imported()


def message(text: str, role: str = "assistant") -> dict[str, Any]:
    return {"type": "message", "role": role, "id": "m", "status": "completed", "content": text}


def call(call_id: str, name: str, arguments: object = "{}") -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}


def output(call_id: str, text: object) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


def test_items_become_messages_calls_and_returns_in_their_order(
    here: Imported, tmp_path: Path
) -> None:
    record = rollout_record(
        {"type": "reasoning", "id": "r", "summary": [{"text": "hm", "type": "summary_text"}]},
        call("c1", "add", '{"count" : 1}'),
        output("c1", '{"success":true}'),
        message("done"),
        agent_ref={"name": "counter_agent"},
    )
    record["response"]["model"] = "m1"
    outcome = here.take_one(write_lines(tmp_path / "counter.rollouts.jsonl", [record]))
    events = here.events(outcome.session_id)
    assert [event.kind for event in events] == [
        "session_seeded",
        "message_added",
        "annotated",
        "message_added",
        "tool_called",
        "tool_returned",
        "message_added",
        "annotated",
        "verified",
        "annotated",
        "session_closed",
    ]
    assert {event.time for event in events} == {1_700_000_000_500_000}
    user, reasoning, answer = bodies(events, "message_added")
    assert (user.role, reasoning.role, answer.role) == ("user", "reasoning", "assistant")
    assert here.value(reasoning.content) == record["response"]["output"][0]
    assert (here.value(answer.content), answer.policy_first, answer.finish_reason) == (
        "done",
        "m1",
        "completed",
    )
    assert user.policy_first is None
    (made,) = bodies(events, "tool_called")
    assert made.arguments == Content("application/json", b'{"count" : 1}')
    (result,) = bodies(events, "tool_returned")
    assert (result.called_step, result.result) == (4, Content("text/plain", b'{"success":true}'))
    (verified,) = bodies(events, "verified")
    assert (verified.verifier, verified.reward, verified.mask_sample) == (
        "counter_agent",
        1.0,
        False,
    )
    seeded = bodies(events, "session_seeded")[0]
    assert (seeded.environment, seeded.policy) == ("counter_agent", "m1")
    assert here.value(notes(events, "rollout")[0].value) == {"agent_ref": {"name": "counter_agent"}}
    left = here.value(notes(events, "response")[0].value)
    assert left["output"] == [
        {},
        {"type": "function_call"},
        {"type": "function_call_output"},
        {"type": "message", "id": "m", "status": "completed"},
    ]


def test_without_an_agent_the_file_names_the_verifier(here: Imported, tmp_path: Path) -> None:
    for name, verifier in (
        ("counter.rollouts.jsonl", "counter"),
        ("counter.v2.jsonl", "counter.v2"),
        ("counter", "counter"),
    ):
        record = rollout_record(id=name)
        events = here.events(here.take_one(write_lines(tmp_path / name, [record])).session_id)
        assert bodies(events, "verified")[0].verifier == verifier
        assert bodies(events, "session_seeded")[0].environment == verifier


def test_reward_components_masks_and_failures(here: Imported, tmp_path: Path) -> None:
    line = (
        '{"responses_create_params":{"input":[]},"response":{"output":[]},"reward":2,'
        '"reward_components":{"format":0.0,"count":1,"nan":NaN,"text":"x","flag":true},'
        '"mask_sample":true,"failure_kind":"session_lost","failure_reason":"gone"}'
    )
    outcome = here.take_one(write_lines(tmp_path / "a.jsonl", [line]))
    (verified,) = bodies(here.events(outcome.session_id), "verified")
    assert (verified.reward, verified.mask_sample, verified.failure_kind) == (
        2.0,
        True,
        "session_lost",
    )
    assert repr(dict(sorted(verified.components.items()))) == repr(
        {"count": 1.0, "format": 0.0, "nan": float("nan")}
    )
    assert verified.output.data.startswith(
        b'{"reward":2,"reward_components":{"format":0.0,"count":1'
    )
    assert [warning.split(" is ")[0] for warning in outcome.warnings] == [
        "$.reward_components.text",
        "$.reward_components.flag",
    ]
    info = here.log.session_info(str(outcome.session_id))
    assert (info.reward, info.reward_from) == (None, None)


@pytest.mark.parametrize(
    ("fields", "task"),
    [
        ({"instance_id": "django-1", "id": "x"}, "django-1"),
        ({"id": "x", "_ng_task_index": 4}, "x"),
        ({"task_idx": 0}, "0"),
        ({"_ng_task_index": 4, "_ng_rollout_index": 2}, "4"),
        ({}, "-"),
    ],
)
def test_the_task_is_the_first_field_that_names_it(
    here: Imported, tmp_path: Path, fields: dict[str, Any], task: str
) -> None:
    outcome = here.take_one(write_lines(tmp_path / "a.jsonl", [rollout_record(**fields)]))
    assert str(outcome.session_id).split("/")[:2] == ["gym-rollouts", task]
    seeded = bodies(here.events(outcome.session_id), "session_seeded")[0]
    assert seeded.rollout_index == fields.get("_ng_rollout_index")


def test_of_lists_that_grow_the_last_is_the_record(here: Imported, tmp_path: Path) -> None:
    items = [message("solve", "user"), call("c", "calc"), output("c", "4"), message("4")]
    record = rollout_record()
    record["response"]["output"] = [items[:1], items[:3], items]
    outcome = here.take_one(write_lines(tmp_path / "a.jsonl", [record]))
    events = here.events(outcome.session_id)
    assert outcome.warnings == ()
    assert len(bodies(events, "tool_called")) == len(bodies(events, "tool_returned")) == 1
    assert [here.value(each.content) for each in bodies(events, "message_added")] == [
        "go",
        "solve",
        "4",
    ]


def test_a_list_that_is_no_begin_of_the_last_is_kept_apart(here: Imported, tmp_path: Path) -> None:
    record = rollout_record()
    record["response"]["output"] = [[message("a")], [message("b"), message("c")]]
    outcome = here.take_one(write_lines(tmp_path / "a.jsonl", [record]))
    events = here.events(outcome.session_id)
    assert here.value(notes(events, "transition")[0].value) == [message("a")]
    assert "$.response.output[0]" in outcome.warnings[0]
    assert [here.value(each.content) for each in bodies(events, "message_added")] == [
        "go",
        "b",
        "c",
    ]


def test_items_of_other_types_are_annotated_whole(here: Imported, tmp_path: Path) -> None:
    item = {"type": "web_search_call", "query": "x"}
    outcome = here.take_one(write_lines(tmp_path / "a.jsonl", [rollout_record(item)]))
    assert here.value(notes(here.events(outcome.session_id), "item")[0].value) == item
    assert "web_search_call" in outcome.warnings[0]


def test_input_may_be_one_text_and_may_hold_calls(here: Imported, tmp_path: Path) -> None:
    one = rollout_record(responses_create_params={"input": "just do it", "temperature": 1.0})
    two = rollout_record(
        output("c", "1"),
        responses_create_params={"input": [{"role": "developer", "content": "x"}, call("c", "f")]},
    )
    first, second = here.take(write_lines(tmp_path / "a.jsonl", [one, two]))
    events = here.events(first.session_id)
    assert here.value(bodies(events, "message_added")[0].content) == "just do it"
    assert here.data(notes(events, "request")[0].value) == b'{"temperature":1.0}'
    events = here.events(second.session_id)
    assert bodies(events, "message_added")[0].role == "developer"
    assert bodies(events, "tool_returned")[0].called_step == 2


def test_tools_stand_in_the_seed_and_nowhere_twice(here: Imported, tmp_path: Path) -> None:
    line = (
        '{"responses_create_params":{"input":[],"tools":[{"name" : "f"}]},'
        '"response":{"output":[],"tools":[{"name" : "f"}],"user":null},"reward":0}'
    )
    events = here.events(here.take_one(write_lines(tmp_path / "a.jsonl", [line])).session_id)
    assert bodies(events, "session_seeded")[0].tools.data == b'[{"name" : "f"}]'
    assert here.data(notes(events, "request")[0].value) == b'{"input":[]}'
    assert here.data(notes(events, "response")[0].value) == b'{"output":[],"user":null}'


def inputs_of(*users: str) -> list[dict[str, Any]]:
    return [
        {
            "responses_create_params": {"input": [{"role": "user", "content": user}]},
            "initial_count": number,
        }
        for number, user in enumerate(users)
    ]


def rollout_of(user: object) -> dict[str, Any]:
    return rollout_record(
        responses_create_params={
            "input": [{"role": "system", "content": "s"}, {"role": "user", "content": user}]
        }
    )


def test_inputs_pair_by_user_message_and_never_by_line(here: Imported, tmp_path: Path) -> None:
    inputs = inputs_of("a", "b", "c")
    write_lines(tmp_path / "x.inputs.jsonl", inputs)
    path = write_lines(
        tmp_path / "x.rollouts.jsonl", [rollout_of("c"), rollout_of("a"), rollout_of("d")]
    )
    outcomes = here.take(path)
    requests = [
        bodies(here.events(each.session_id), "session_seeded")[0].request for each in outcomes
    ]
    assert [request and here.value(request) for request in requests] == [inputs[2], inputs[0], None]
    assert requests[0].data == json.dumps(inputs[2]).encode()
    assert [bool(each.warnings) for each in outcomes] == [False, False, True]


def test_inputs_may_lie_elsewhere(here: Imported, tmp_path: Path) -> None:
    inputs = write_lines(tmp_path / "tasks.jsonl", ["{", *map(json.dumps, inputs_of("a")), "[]"])
    path = write_lines(tmp_path / "x.jsonl", [rollout_of("a")])
    assert here.take_one(path, inputs=inputs).warnings == ()


@pytest.mark.parametrize(
    ("inputs", "user"),
    [
        (["a", "a"], "a"),
        ([""], "x"),
        (["a"], ["a"]),
    ],
    ids=["two inputs differ", "another text", "a list, not the text"],
)
def test_a_doubtful_pair_is_none(
    here: Imported, tmp_path: Path, inputs: list[str], user: object
) -> None:
    write_lines(tmp_path / "x.inputs.jsonl", inputs_of(*inputs))
    outcome = here.take_one(write_lines(tmp_path / "x.rollouts.jsonl", [rollout_of(user)]))
    assert "no task input" in outcome.warnings[0]


def test_rollouts_without_user_messages_pair_with_nothing(here: Imported, tmp_path: Path) -> None:
    write_lines(tmp_path / "x.inputs.jsonl", [{"responses_create_params": {"input": []}}])
    record = rollout_record(responses_create_params={"input": []})
    outcome = here.take_one(write_lines(tmp_path / "x.rollouts.jsonl", [record]))
    assert bodies(here.events(outcome.session_id), "session_seeded")[0].request is None


def test_a_file_of_inputs_is_named_as_such(here: Imported, tmp_path: Path) -> None:
    (outcome,) = here.take(write_lines(tmp_path / "x.inputs.jsonl", inputs_of("a")))
    assert (outcome.session_id, outcome.failed) == (None, False)
    assert "task inputs" in outcome.warnings[0]


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        (1700000000, 1_700_000_000_000_000),
        (1700000000.123456, 1_700_000_000_123_456),
        (0, 0),
        (-5, 0),
        (None, 0),
        ("now", 0),
        (True, 0),
        (float("nan"), 0),
        (float("inf"), 0),
        (10**30, 0),
        (10**400, 0),
    ],
)
def test_the_time_is_the_responses_or_none(
    here: Imported, tmp_path: Path, time: object, expected: int
) -> None:
    record = rollout_record()
    record["response"]["created_at"] = time
    events = here.events(here.take_one(write_lines(tmp_path / "a.jsonl", [record])).session_id)
    assert {event.time for event in events} == {expected}


@pytest.mark.parametrize(
    ("record", "says"),
    [
        ({"responses_create_params": {}}, "$ has no 'response'"),
        ({"response": {}}, "$.response has no 'output'"),
        ({"response": {"output": {}}}, "$.response.output should be a list"),
        ({"response": {"output": [1]}}, "$.response.output[0] should be an object"),
        ({"response": {"output": [{"type": "message"}]}}, "output[0] has no 'role'"),
        ({"response": {"output": [{"type": "function_call"}]}}, "output[0] has no 'name'"),
        ({"response": {"output": [{"type": 1}]}}, "output[0].type should be text"),
        ({"response": {"output": []}, "reward": "1"}, "$.reward should be a number"),
        ({"response": {"output": []}, "reward": 1, "mask_sample": 1}, "$.mask_sample should be"),
        ({"response": {"output": []}, "agent_ref": "x"}, "$.agent_ref should be an object"),
        ({"response": {"output": [[], 1]}}, "$.response.output[0] should be an object"),
    ],
)
def test_a_record_of_the_wrong_shape_names_the_place(
    here: Imported, tmp_path: Path, record: dict[str, Any], says: str
) -> None:
    (outcome,) = here.take(write_lines(tmp_path / "a.jsonl", [record]), format="gym-rollouts")
    assert says in str(outcome.problem)
