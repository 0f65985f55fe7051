"""Values that broke other tools' exports: lone surrogates (D8), NaN and its kin (D9)."""

import math
import os
import random
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from eventlog.content import JsonText
from eventlog.json_form import from_json_form
from eventlog.recorder import SessionRecorder
from tests.support.command import Command, strict_json
from tests.support.sources import ROOT

SURROGATES = ["a\udc00b", "\ud83d", "\ude00", "\udfff\ud800", "plain 🙂 \u2028 \x00 \x9b"]

REWARDS = [math.nan, math.inf, -math.inf, -0.0, 5e-324]


def bits(number: float) -> bytes:
    """A float's bits; every NaN's the same."""
    return struct.pack(">d", math.nan if math.isnan(number) else number)


def number_of(form: Any) -> float:
    """A row's number."""
    return float(form["$float"]) if isinstance(form, dict) else float(form)


def value_of(content: Any) -> Any:
    """What a content's row holds."""
    return from_json_form(content["value"])


@pytest.fixture
def recorded(steplog: Command) -> Command:
    """Every hard text as argument, result, message, note, name, id, key and part of a state."""
    with steplog.open() as ws:
        for number, text in enumerate(SURROGATES):
            state = {"text": text, text: [text], "set": {text, 1}, "$k": {"$int": "1"}}
            with ws.record(f"s{number}", environment="hard", state=lambda s=state: s) as session:
                record_text(session, text)
    return steplog


def record_text(session: SessionRecorder, text: str) -> None:
    """Record a text in every place that takes one."""
    step = session.record_tool_call("say" + text, {"x": text}, call_id="c" + text)
    session.record_tool_return(step, text)
    session.record_message("user", text)
    session.annotate("note", {"k": text})


@pytest.mark.parametrize("number", range(len(SURROGATES)))
def test_text_comes_back_as_it_was(recorded: Command, number: int) -> None:
    text = SURROGATES[number]
    (call,) = recorded.rows("calls", f"s{number}")
    assert from_json_form(call["arguments"]) == {"x": text}
    assert from_json_form(call["result"]) == text
    events = recorded.rows("show", f"s{number}")
    assert value_of(events[3]["body"]["content"]) == text
    assert value_of(events[4]["body"]["value"]) == {"k": text}
    replayed = recorded.row("replay", f"s{number}")
    state = from_json_form(replayed["state"])
    assert state == {"text": text, text: [text], "set": {text, 1}, "$k": {"$int": "1"}}
    transcript = recorded("replay", f"s{number}", "--reducer", "transcript", "--json").row
    assert from_json_form(transcript["state"]["messages"][0]["content"]) == text


def test_every_verb_prints_it_to_a_person_and_to_a_pipe(recorded: Command) -> None:
    for verb in (["sessions"], ["calls"], ["tail"], ["show", "s0"], ["show", "s0@2"]):
        assert recorded(*verb).code == 0
    for verb in (["replay", "s0"], ["show", "s1", "--events"], ["check"]):
        assert recorded(*verb).code == 0
    assert recorded("diff", "s0@4", "s1@4", "--json").code == 1
    assert recorded("diff", "s0", "s1").code == 1


def test_the_real_process_writes_utf_8_whatever_the_terminal_has(recorded: Command) -> None:
    command = [sys.executable, "-m", "replay.cli", "-w", str(recorded.workspace), "--json"]
    for verb in (["tail", "-n", "1000"], ["calls"], ["replay", "s0"]):
        done = subprocess.run(
            [*command, *verb],
            cwd=ROOT,
            capture_output=True,
            check=True,
            env={"PYTHONIOENCODING": "ascii", "LC_ALL": "C", "PATH": ""},
            timeout=60,
        )
        for line in done.stdout.decode("utf-8").split("\n")[:-1]:
            strict_json(line)


def test_rewards_that_json_has_no_number_for(steplog: Command) -> None:
    with steplog.open() as ws:
        for number, reward in enumerate(REWARDS):
            state = {"loss": reward}
            with ws.record(f"s{number}", environment="hard", state=lambda s=state: s) as session:
                with session.call("act", {"x": reward}) as call:
                    call.reward = reward
                    call.result = {"y": reward}
                session.record_verification(reward, verifier="rules", components={"c": reward})
    sessions = steplog.rows("sessions")
    calls = steplog.rows("calls")
    for number, reward in enumerate(REWARDS):
        body = steplog.row("show", f"s{number}@3")["body"]
        state = from_json_form(steplog.row("replay", f"s{number}@2")["state"])
        transcript = from_json_form(
            steplog("replay", f"s{number}", "--reducer", "transcript", "--json").row["state"]
        )
        assert isinstance(state, dict)
        assert isinstance(transcript, dict)
        found = [
            number_of(sessions[number]["reward"]),
            number_of(calls[number]["reward"]),
            from_json_form(calls[number]["arguments"])["x"],  # type: ignore[index]
            from_json_form(calls[number]["result"])["y"],  # type: ignore[index]
            from_json_form(body["reward"]),
            from_json_form(body["components"])["c"],  # type: ignore[index]
            state["loss"],
            transcript["verified"][0]["reward"],
        ]
        assert {bits(each) for each in found} == {bits(reward)}  # type: ignore[arg-type]
    assert steplog("sessions").code == steplog("calls").code == steplog("show", "s0").code == 0


def test_the_state_digest_is_the_same_in_another_process(steplog: Command) -> None:
    with steplog.open() as ws, ws.record("s", environment="hard", state={"r": REWARDS}):
        pass
    row = steplog.row("replay", "s@0")
    command = [sys.executable, "-m", "replay.cli", "-w", str(steplog.workspace)]
    for seed in ("1", "2"):
        done = subprocess.run(
            [*command, "--json", "replay", "s@0"],
            cwd=ROOT,
            capture_output=True,
            check=True,
            env={"PYTHONHASHSEED": seed},
            timeout=60,
        )
        assert strict_json(done.stdout.decode()) == row


def test_json_text_that_would_lose_something_stays_text(steplog: Command) -> None:
    texts = ['{"a":1,"a":2}', "[1e400]", "[NaN]", '"\\ud83d"', "[0.1, 12345678901234567890]"]
    with steplog.open() as ws, ws.record("s", environment="hard") as session:
        for text in texts:
            session.record_tool_return(session.record_tool_call("t", text), JsonText(text))
    found = [from_json_form(row["arguments"]) for row in steplog.rows("calls", "s")]
    assert found == [*texts[:3], "\ud83d", [0.1, 12345678901234567890]]


def test_random_values_of_the_state_come_back(steplog: Command) -> None:
    rng = random.Random(11)
    states = [{"v": random_value(rng, 4)} for _ in range(40)]
    with steplog.open() as ws, ws.record("s", environment="hard", state={"v": None}) as session:
        for state in states:
            session.record_state("next", state)
    for step, state in enumerate(states, 1):
        row = steplog.row("replay", "s", "--step", step)
        assert from_json_form(row["state"]) == state


def random_value(rng: random.Random, depth: int) -> Any:
    """A value with what JSON has not."""
    atoms = [None, True, 1, -(2**70), 1.0, -0.0, 2.5, "$int", "\ud800", b"\x00", "x" * 20]
    if depth == 0 or rng.random() < 0.3:
        return rng.choice(atoms)
    parts = [random_value(rng, depth - 1) for _ in range(rng.randrange(4))]
    keyed = {f"${number}": part for number, part in enumerate(parts)}
    return rng.choice([parts, tuple(parts), keyed, dict(enumerate(parts))])


BAD_BYTES = os.fsdecode(b"\xff")
DIGEST = "0" * 64


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["show", BAD_BYTES], 5),
        (["show", f"{BAD_BYTES}@3"], 5),
        (["show", "s@3", "--content", BAD_BYTES], 2),
        (["show", "s", "--actor", BAD_BYTES], 0),
        (["sessions", "--environment", BAD_BYTES], 0),
        (["sessions", "--prefix", BAD_BYTES], 0),
        (["sessions", "--writer", BAD_BYTES], 0),
        (["sessions", "--idle", "999999999d"], 0),
        (["sessions", "--since", "9999-12-31T23:59:59-23:59"], 0),
        (["sessions", "--since", "0001-01-01T00:00:00+23:59"], 0),
        (["sessions", "--reward-min", "nan"], 0),
        (["calls", BAD_BYTES], 5),
        (["calls", "--tool", BAD_BYTES], 0),
        (["tail", "--lines", "9" * 30], 0),
        (["replay", f"s@{'9' * 30}"], 5),
        (["replay", "s", "--step", "9" * 30], 5),
        (["replay", "s", "--path", BAD_BYTES], 2),
        (["diff", f"s@{'9' * 30}", "s@1"], 5),
        (["diff", "s", BAD_BYTES], 5),
        (["fork", f"s@{'9' * 30}"], 5),
        (["fork", "s@1", "--name", BAD_BYTES], 1),
        (["fork", "s@1", "--name", "a\nb"], 1),
        (["fork", "s@1", "--name", ""], 1),
        (["fork", "s@1", "--name", "x" * 256], 1),
        (["fork", "s@1", "--change", f"{BAD_BYTES}=1"], 1),
        (["check", BAD_BYTES], 5),
        (["check", "--expect", f"{BAD_BYTES}@3:{DIGEST}"], 4),
        (["check", "--expect", f"s@{'9' * 30}:{DIGEST}"], 4),
        (["close", BAD_BYTES], 5),
        (["close", "s", "--reason", BAD_BYTES], 2),
        (["snapshot", "list", BAD_BYTES], 5),
        (["snapshot", "take", f"s@{'9' * 30}"], 5),
        (["import", BAD_BYTES], 1),
        (["import", "/"], 1),
    ],
)
@pytest.mark.parametrize("form", [[], ["--json"]], ids=["text", "json"])
def test_whatever_is_typed_is_answered_and_never_a_traceback(
    steplog: Command, arguments: list[str], code: int, form: list[str]
) -> None:
    with steplog.open() as ws:
        session = ws.record("s", environment="hard", state={"n": 1})
        for _ in range(3):
            session.record_message("user", "hello")
        session.flush()
        ran = steplog(*arguments, *form)
        assert ran.code == code, ran.err
        assert session.record_message("user", "the session is still its writer's") == 4
    if code in (1, 2, 5):
        assert ran.out == ""
        assert "rror: " in ran.err


def test_a_workspace_that_is_none(steplog: Command, tmp_path: Path) -> None:
    file = tmp_path / "a file"
    file.touch()
    for place in (file, file / "below", tmp_path / BAD_BYTES, Path("http://host/x")):
        for verb in (["sessions"], ["check"], ["tail", "-f", "--for", "0s"]):
            ran = steplog.at(place)(*verb)
            assert (ran.code, ran.out) == (2, "")
            assert "error: " in ran.err
    assert sorted(tmp_path.iterdir()) == [file]
