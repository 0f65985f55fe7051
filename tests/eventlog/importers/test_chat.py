"""Chat transcripts: roles, exact texts, and calls whose ids repeat (case D11)."""

import json
import random
from pathlib import Path

import pytest

from eventlog.content import Content
from tests.support.imported import (
    Imported,
    bodies,
    called,
    chat_record,
    notes,
    returned,
    said,
    write_lines,
)


@pytest.fixture
def here() -> Imported:
    return Imported()


def kinds(here: Imported, session_id: str | None) -> list[str]:
    return [event.kind for event in here.events(session_id)][1:-1]


def test_each_message_becomes_what_its_role_says(here: Imported, tmp_path: Path) -> None:
    record = chat_record(
        7,
        said("system", "rules"),
        said("user", "hello"),
        said(
            "assistant", "let me look", tool_calls=called("c1", "look", '{"a": 1 }')["tool_calls"]
        ),
        returned("c1", "found", name="look"),
        said("assistant", ""),
        said("assistant", None),
        trial=3,
        info={"cost": 1.0},
    )
    outcome = here.take_one(write_lines(tmp_path / "a.jsonl", [record]))
    events = here.events(outcome.session_id)
    assert outcome.warnings == ()
    assert outcome.state == "none"
    assert kinds(here, outcome.session_id) == [
        "message_added",
        "message_added",
        "message_added",
        "tool_called",
        "tool_returned",
        "message_added",
        "message_added",
        "verified",
        "annotated",
    ]
    messages = bodies(events, "message_added")
    assert [each.role for each in messages] == ["system", "user"] + ["assistant"] * 3
    assert [here.value(each.content) for each in messages] == [
        "rules",
        "hello",
        "let me look",
        "",
        None,
    ]
    (call,) = bodies(events, "tool_called")
    assert (call.tool, call.call_id) == ("look", "c1")
    assert call.arguments == Content("application/json", b'{"a": 1 }')
    (result,) = bodies(events, "tool_returned")
    assert (result.called_step, result.status) == (4, "ok")
    assert result.result == Content("text/plain", b"found")
    assert bodies(events, "session_seeded")[0].rollout_index == 3
    assert here.value(notes(events, "info")[0].value) == {"cost": 1.0}
    assert notes(events, "record") == []
    assert [event.actor for event in events][1:6] == [
        "system",
        "system",
        "agent",
        "agent",
        "tool",
    ]


ARGUMENTS = [
    ('{"b":1,  "a":1.0}', "application/json"),
    ("{}", "application/json"),
    ('{"x": NaN}', "text/plain"),
    ('{"x": ', "text/plain"),
    ("", "text/plain"),
    ("plain words", "text/plain"),
    ('{"a": "\\ud83d"}', "application/json"),
    ('{"a": 0.9999999999999998, "n": 123456789012345678901234567890}', "application/json"),
]


@pytest.mark.parametrize(("text", "media_type"), ARGUMENTS)
def test_argument_text_is_kept_byte_for_byte(
    here: Imported, tmp_path: Path, text: str, media_type: str
) -> None:
    path = write_lines(tmp_path / "a.jsonl", [chat_record(0, called("c", "t", text))])
    (call,) = bodies(here.events(here.take_one(path).session_id), "tool_called")
    assert call.arguments == Content(media_type, text.encode())


def test_arguments_and_contents_that_are_no_text_keep_their_exact_json(
    here: Imported, tmp_path: Path
) -> None:
    line = (
        '{"task_id":"t","traj":[{"role":"user","content":[ {"type":"text","text":"\\u00e9"} ]},'
        '{"role":"assistant","content":null,"tool_calls":[{"name":"f","id":null,'
        '"arguments":{"n" : 1.0, "m":1}}]}]}'
    )
    events = here.events(here.take_one(write_lines(tmp_path / "a.jsonl", [line])).session_id)
    (message,) = bodies(events, "message_added")
    assert here.data(message.content) == b'[ {"type":"text","text":"\\u00e9"} ]'
    (call,) = bodies(events, "tool_called")
    assert (call.tool, call.call_id) == ("f", None)
    assert here.data(call.arguments) == b'{"n" : 1.0, "m":1}'


@pytest.mark.parametrize(
    ("text", "reward", "media_type"),
    [
        ("1", 1.0, "application/json"),
        ("1.0", 1.0, "application/json"),
        ("0.9999999999999998", 0.9999999999999998, "application/json"),
        ("-0.0", -0.0, "application/json"),
        ("5e-324", 5e-324, "application/json"),
        ("123456789012345678901", 123456789012345680000.0, "application/json"),
        ("null", None, "application/json"),
        ("NaN", float("nan"), "text/plain"),
        ("Infinity", float("inf"), "text/plain"),
        ("-Infinity", float("-inf"), "text/plain"),
    ],
)
def test_rewards_keep_their_number_and_its_form(
    here: Imported, tmp_path: Path, text: str, reward: float | None, media_type: str
) -> None:
    line = f'{{"task_id":1,"traj":[],"reward":{text}}}'
    events = here.events(here.take_one(write_lines(tmp_path / "a.jsonl", [line])).session_id)
    (verified,) = bodies(events, "verified")
    assert repr(verified.reward) == repr(reward)
    assert verified.output == Content(media_type, text.encode())


@pytest.mark.parametrize("text", ['"1"', "true", "[1]", "{}", "1" + "0" * 400])
def test_a_reward_that_is_no_number_is_a_bad_record(
    here: Imported, tmp_path: Path, text: str
) -> None:
    line = f'{{"task_id":1,"traj":[],"reward":{text}}}'
    (outcome,) = here.take(write_lines(tmp_path / "a.jsonl", [line]))
    assert "$.reward should be a number" in str(outcome.problem)


def test_lone_surrogates_are_kept_and_escaped_only_in_names(here: Imported, tmp_path: Path) -> None:
    record = chat_record(
        0, said("user", "a\udc00b"), called("c\ud83d", "t\ude00"), returned("c\ud83d", "\ud83d")
    )
    outcome = here.take_one(write_lines(tmp_path / "a.jsonl", [record]))
    events = here.events(outcome.session_id)
    assert here.value(bodies(events, "message_added")[0].content) == "a\udc00b"
    (call,) = bodies(events, "tool_called")
    assert (call.tool, call.call_id) == ("t\\ude00", "c\\ud83d")
    (result,) = bodies(events, "tool_returned")
    assert (result.called_step, here.value(result.result)) == (2, "\ud83d")
    assert len(outcome.warnings) == 2


def test_d11_one_id_for_every_call_keeps_every_call_and_every_result(
    here: Imported, tmp_path: Path
) -> None:
    messages = []
    for index in range(5):
        messages += [called("call_0", f"tool_{index}"), returned("call_0", f"result {index}")]
    outcome = here.take_one(write_lines(tmp_path / "a.jsonl", [chat_record(0, *messages)]))
    events = here.events(outcome.session_id)
    assert outcome.warnings == ()
    results = bodies(events, "tool_returned")
    assert [here.value(each.result) for each in results] == [f"result {i}" for i in range(5)]
    assert [events[each.called_step].body.tool for each in results] == [
        f"tool_{i}" for i in range(5)
    ]


def test_d11_open_calls_of_one_id_are_answered_first_in_first_out(
    here: Imported, tmp_path: Path
) -> None:
    record = chat_record(
        0,
        called("x", "first"),
        called("x", "second"),
        called("y", "third"),
        returned("y", "3"),
        returned("x", "1"),
        called("x", "fourth"),
        returned("x", "2"),
    )
    outcome = here.take_one(write_lines(tmp_path / "a.jsonl", [record]))
    events = here.events(outcome.session_id)
    answered = {
        events[each.called_step].body.tool: here.value(each.result)
        for each in bodies(events, "tool_returned")
    }
    assert answered == {"third": "3", "first": "1", "second": "2"}
    assert outcome.warnings == ("calls without a result, which stay open: 1 (steps 6)",)


def test_d11_a_result_without_a_call_is_kept_as_it_came_and_warned_of(
    here: Imported, tmp_path: Path
) -> None:
    record = chat_record(0, returned("x", "before any"), called("x", "t"), returned("y", "other"))
    outcome = here.take_one(write_lines(tmp_path / "a.jsonl", [record]))
    events = here.events(outcome.session_id)
    assert bodies(events, "tool_returned") == []
    kept = [here.value(note.value) for note in notes(events, "unpaired_result")]
    assert kept == [returned("x", "before any"), returned("y", "other")]
    assert len(outcome.warnings) == 3
    assert outcome.warnings[0] == "step 1: a result for call id 'x' has no open call"


def test_d11_random_orders_of_repeated_ids_lose_nothing(tmp_path: Path) -> None:
    chance = random.Random(70724)
    for round_number in range(60):
        here = Imported()
        waiting: dict[str, list[int]] = {}
        expected: list[tuple[int, int]] = []
        orphans = made = 0
        messages = []
        for number in range(chance.randrange(30)):
            call_id = chance.choice(["a", "b", "c"])
            if chance.random() < 0.55:
                messages.append(called(call_id, "t", str(made)))
                waiting.setdefault(call_id, []).append(made)
                made += 1
            else:
                messages.append(returned(call_id, str(number)))
                if waiting.get(call_id):
                    expected.append((waiting[call_id].pop(0), number))
                else:
                    orphans += 1
        path = write_lines(tmp_path / f"{round_number}.jsonl", [chat_record(0, *messages)])
        events = here.events(here.take_one(path).session_id)
        assert len(bodies(events, "tool_called")) == made
        assert len(notes(events, "unpaired_result")) == orphans
        paired = [
            (int(here.value(events[each.called_step].body.arguments)), int(here.value(each.result)))
            for each in bodies(events, "tool_returned")
        ]
        assert paired == expected


def test_a_result_named_otherwise_than_its_call_is_warned_of(
    here: Imported, tmp_path: Path
) -> None:
    record = chat_record(0, called("x", "look"), returned("x", "1", name="book"))
    outcome = here.take_one(write_lines(tmp_path / "a.jsonl", [record]))
    assert outcome.warnings == ("step 2: the result is named 'book', its call 'look'",)
    events = here.events(outcome.session_id)
    assert here.value(notes(events, "record")[0].value) == {"traj": [{}, {"name": "book"}]}


def test_what_no_event_holds_stands_in_one_annotation(here: Imported, tmp_path: Path) -> None:
    line = (
        '{"task_id":"t","extra": 1.0,"traj":[{"role":"user","content":"x","name":"Ann"},'
        '{"role":"assistant","content":null,"refusal":null,"tool_calls":[{"id":"c","index":0,'
        '"type":"function","function":{"name":"f","arguments":"{}","strict":true}}]}],"reward":0}'
    )
    events = here.events(here.take_one(write_lines(tmp_path / "a.jsonl", [line])).session_id)
    assert here.data(notes(events, "record")[0].value) == (
        b'{"extra":1.0,"traj":[{"name":"Ann"},'
        b'{"refusal":null,"tool_calls":[{"index":0,"function":{"strict":true}}]}]}'
    )


def test_messages_is_another_name_for_the_list(here: Imported, tmp_path: Path) -> None:
    record = {"messages": [said("user", "x")], "tools": [{"name": "f"}]}
    outcome = here.take_one(write_lines(tmp_path / "a.jsonl", [record]))
    events = here.events(outcome.session_id)
    assert outcome.format == "chat"
    assert str(outcome.session_id).startswith("chat/-/")
    assert here.value(bodies(events, "session_seeded")[0].tools) == [{"name": "f"}]
    assert bodies(events, "verified") == []


@pytest.mark.parametrize(
    ("message", "says"),
    [
        ({"content": "x"}, "$.traj[0] has no 'role'"),
        ({"role": 1, "content": "x"}, "$.traj[0].role should be text"),
        ("x", "$.traj[0] should be an object"),
        ({"role": "tool", "tool_call_id": "c"}, "$.traj[0] has no 'content'"),
        ({"role": "tool", "tool_call_id": 5, "content": ""}, "tool_call_id should be text"),
        ({"role": "assistant", "tool_calls": {}}, "$.traj[0].tool_calls should be a list"),
        ({"role": "assistant", "tool_calls": [{}]}, "$.traj[0].tool_calls[0] has no 'name'"),
        (
            {"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]},
            "$.traj[0].tool_calls[0].function has no 'arguments'",
        ),
    ],
)
def test_a_record_of_the_wrong_shape_names_the_place(
    here: Imported, tmp_path: Path, message: object, says: str
) -> None:
    record = {"task_id": 0, "traj": [message]}
    (outcome,) = here.take(write_lines(tmp_path / "a.jsonl", [json.dumps(record)]))
    assert says in str(outcome.problem)
