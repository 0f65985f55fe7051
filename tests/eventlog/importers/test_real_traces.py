"""Every trace file of the test data: what it becomes, pinned; and that it is always the same."""

import hashlib
import json
import os
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from eventlog.canonical import decode, digest
from eventlog.content import STATE_PATCH
from eventlog.errors import ImportFormatError
from eventlog.event import Event, StateChange
from eventlog.importers.import_file import ImportOutcome
from eventlog.state_patch import apply
from tests.support.data import ROOT, data_path
from tests.support.imported import Imported, bodies, notes
from tests.support.second_python import second_python

# file; format; sessions; events; calls; returns; messages; verified; warnings
TABLE = """
bfcl_multi_turn/base.jsonl                                 bfcl         100 1839 583 583 373  0 100
bfcl_multi_turn/long_context.jsonl                         bfcl          24  437 124 124  93  0 0
nemo_gym/anyswe_opencode.rollouts.jsonl                    gym-rollouts   5  113  27  26  30  5 1
nemo_gym/aviary.rollouts.jsonl                             gym-rollouts   5   65  13  13   9  5 0
nemo_gym/blackjack.rollouts.jsonl                          gym-rollouts   5   54   0   0  24  5 5
nemo_gym/conversational_tool_use_simulation.rollouts.jsonl gym-rollouts   5  137  14  14  79  5 0
nemo_gym/example_multi_step.rollouts.jsonl                 gym-rollouts   5   77  16  16  15  5 0
nemo_gym/example_session_state_mgmt.rollouts.jsonl         gym-rollouts   5   65  15  15  10  5 0
nemo_gym/example_tool_call_multireward.rollouts.jsonl      gym-rollouts   5   64   5   5  24  5 0
nemo_gym/math_advanced_calculations.rollouts.jsonl         gym-rollouts   5   49   7   7  10  5 0
nemo_gym/math_with_code.rollouts.jsonl                     gym-rollouts   5  136  31  31  44  5 0
nemo_gym/mini_swe_agent_2.rollouts.jsonl                   gym-rollouts   5  355 129 124  72  5 3
nemo_gym/newton_bench.rollouts.jsonl                       gym-rollouts   5  134  28  28  48  5 0
nemo_gym/workplace_assistant.rollouts.jsonl                gym-rollouts   5   56   8   8  15  5 5
nemo_gym/xlam_fc.rollouts.jsonl                            gym-rollouts   5   72   6   6  30  5 0
swe_agent/0_swe-agent__test-repo-i1.traj                   swe-agent      1   29   5   5   8  0 0
swe_agent/1_function_calling_simple.traj                   swe-agent      1   20   5   5   7  0 0
swe_agent/2_BabyTimeCapsule.traj                           swe-agent      1   44   9   9  11  0 0
swe_agent/3_i_got_id_demo.traj                             swe-agent      1   92  21  21  23  0 0
swe_agent/4_marshmallow-code__marshmallow-1867.traj        swe-agent      1   52  11  11  13  0 0
tau_bench_airline/gpt-4o-airline.trial0.jsonl              chat          50 1606 282 282 842 50 0
tau_bench_airline/gpt-4o-airline.trial1.jsonl              chat          50 1494 290 290 714 50 0
"""
GOLDEN = ROOT / "tests" / "golden" / "imported_digests.txt"
ROWS = [line.split() for line in TABLE.strip().splitlines()]
FILES = [row[0] for row in ROWS]

# Files of the same folders that hold no sessions: task inputs, and what was derived from sessions.
INPUTS = [
    "nemo_gym/blackjack.inputs.jsonl",
    "nemo_gym/example_multi_step.inputs.jsonl",
    "nemo_gym/example_session_state_mgmt.inputs.jsonl",
    "nemo_gym/workplace_assistant.inputs.jsonl",
]
DERIVED = ["tau_bench_airline/gold.trial0.jsonl", "tau_bench_airline/gold.trial1.jsonl"]

DIGESTS_OF_ALL = """
import hashlib, json, sys
from pathlib import Path
from tests.support.imported import Imported
here = Imported()
for path in sys.argv[1:]:
    here.take(Path(path))
print(hashlib.sha256(json.dumps(here.digests(), sort_keys=True).encode()).hexdigest())
"""


def trace(name: str) -> Path:
    return data_path("traces", *name.split("/"))


def records(name: str) -> list[Any]:
    data = trace(name).read_bytes()
    if name.endswith(".traj"):
        return [json.loads(data)]
    return [json.loads(line) for line in data.split(b"\n") if line.strip()]


@cache
def imported(name: str) -> tuple[Imported, list[ImportOutcome]]:
    here = Imported()
    return here, here.take(trace(name))


@cache
def sessions(name: str) -> list[list[Event]]:
    here, outcomes = imported(name)
    return [here.events(outcome.session_id) for outcome in outcomes]


def test_the_table_names_every_file_of_the_four_folders() -> None:
    folders = ["bfcl_multi_turn", "nemo_gym", "swe_agent", "tau_bench_airline"]
    found = {f"{folder}/{file.name}" for folder in folders for file in trace(folder).iterdir()}
    assert found == {*FILES, *INPUTS, *DERIVED}


@pytest.mark.parametrize("row", ROWS, ids=FILES)
def test_what_each_file_becomes(row: list[str]) -> None:
    name, format_name = row[:2]
    state = "full" if name == "bfcl_multi_turn/base.jsonl" else "none"
    _, outcomes = imported(name)
    assert {(each.format, each.state) for each in outcomes} == {(format_name, state)}
    assert not any(each.failed for each in outcomes)
    kinds = Counter(event.kind for events in sessions(name) for event in events)
    found = [
        len(outcomes),
        sum(each.events for each in outcomes),
        kinds["tool_called"],
        kinds["tool_returned"],
        kinds["message_added"],
        kinds["verified"],
        sum(len(each.warnings) for each in outcomes),
    ]
    assert found == [int(cell) for cell in row[2:]]
    assert kinds.total() == found[1]


@pytest.mark.parametrize("name", INPUTS)
def test_task_inputs_are_no_sessions_and_no_fault(name: str) -> None:
    here = Imported()
    (outcome,) = here.take(trace(name))
    assert (outcome.session_id, outcome.failed) == (None, False)
    assert "task inputs" in outcome.warnings[0]
    assert list(here.log.list_sessions()) == []


@pytest.mark.parametrize("name", DERIVED)
def test_what_is_no_trace_is_refused(name: str) -> None:
    here = Imported()
    with pytest.raises(ImportFormatError, match="no record of a known format"):
        here.take(trace(name))
    assert list(here.log.list_sessions()) == []


@pytest.mark.parametrize("name", FILES)
def test_events_read_back_in_order_as_one_closed_line(name: str) -> None:
    here, outcomes = imported(name)
    for outcome, events in zip(outcomes, sessions(name), strict=True):
        assert [event.step for event in events] == list(range(outcome.events))
        assert {event.attempt for event in events} == {1}
        info = here.log.session_info(str(outcome.session_id))
        assert (info.status, info.error, info.step_count) == ("closed", None, outcome.events)
        assert info.writer is None
    assert list(here.log.find_damage()) == []


@pytest.mark.parametrize("name", FILES)
def test_importing_twice_adds_nothing_and_another_log_gets_the_same(name: str) -> None:
    here, outcomes = imported(name)
    kept = here.digests()
    assert [each._replace(events=0) for each in outcomes] == here.take(trace(name))
    assert here.digests() == kept
    other = Imported()
    other.take(trace(name))
    assert other.digests() == kept


@pytest.mark.parametrize("which", ["this Python, other hash seed", "second Python"])
def test_other_processes_give_the_same_digests(which: str) -> None:
    here = Imported()
    for name in FILES:
        here.take(trace(name))
    expected = hashlib.sha256(json.dumps(here.digests(), sort_keys=True).encode()).hexdigest()
    python = second_python() if which == "second Python" else sys.executable
    for hash_seed in ("0", "4711"):
        run = subprocess.run(
            [python, "-c", DIGESTS_OF_ALL, *(str(trace(name)) for name in FILES)],
            cwd=ROOT,
            env={"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.stdout.strip() == expected, run.stderr[-2000:]


@pytest.mark.parametrize("name", [name for name in FILES if "gpt-4o-airline" in name])
def test_d11_airline_calls_and_results_are_all_kept_and_paired_by_order(name: str) -> None:
    here, _ = imported(name)
    repeats = 0
    for record, events in zip(records(name), sessions(name), strict=True):
        messages = record["traj"]
        calls = [call for each in messages for call in each.get("tool_calls") or []]
        results = [each for each in messages if each["role"] == "tool"]
        made, given = bodies(events, "tool_called"), bodies(events, "tool_returned")
        assert [(each.tool, each.call_id) for each in made] == [
            (call["function"]["name"], call["id"]) for call in calls
        ]
        assert [here.data(each.arguments).decode() for each in made] == [
            call["function"]["arguments"] for call in calls
        ]
        assert [here.data(each.result).decode() for each in given] == [
            each["content"] for each in results
        ]
        for answer, result in zip(given, results, strict=True):
            call = events[answer.called_step].body
            assert call.call_id == result["tool_call_id"]
            assert call.tool == result["name"]
        assert len({each.called_step for each in given}) == len(given)
        repeats += len(made) - len({each.call_id for each in made})
        (verified,) = bodies(events, "verified")
        assert repr(verified.reward) == repr(record["reward"])
        assert here.value(notes(events, "info")[0].value) == record["info"]
    assert repeats == {"0": 17, "1": 21}[name[-7]]


@pytest.mark.parametrize("name", [name for name in FILES if name.startswith("nemo_gym/")])
def test_rollouts_keep_every_item_text_and_reward(name: str) -> None:
    here, _ = imported(name)
    for record, events in zip(records(name), sessions(name), strict=True):
        output = record["response"]["output"]
        if output and isinstance(output[0], list):
            output = output[-1]
        items = record["responses_create_params"]["input"] + output
        calls = [item for item in items if item.get("type") == "function_call"]
        answers = [item for item in items if item.get("type") == "function_call_output"]
        assert [here.data(each.arguments).decode() for each in bodies(events, "tool_called")] == [
            item["arguments"] for item in calls
        ]
        assert [here.data(each.result).decode() for each in bodies(events, "tool_returned")] == [
            item["output"] for item in answers
        ]
        said = [item for item in items if item.get("type") in ("message", "reasoning")]
        assert [here.value(each.content) for each in bodies(events, "message_added")] == [
            item["content"] if item["type"] == "message" else item for item in said
        ]
        (verified,) = bodies(events, "verified")
        assert verified.reward == record["reward"]
        assert dict(verified.components) == record.get("reward_components", {})
        assert verified.verifier == record.get("agent_ref", {}).get(
            "name", name.removeprefix("nemo_gym/").removesuffix(".rollouts.jsonl")
        )
        others = {
            key: value
            for key, value in record.items()
            if key not in ("responses_create_params", "response", "reward")
        }
        assert [here.value(note.value) for note in notes(events, "rollout")] == (
            [others] if others else []
        )


@pytest.mark.parametrize(
    ("stem", "paired"),
    [
        ("example_multi_step", 5),
        ("example_session_state_mgmt", 5),
        ("workplace_assistant", 0),
        ("blackjack", 0),
    ],
)
def test_inputs_pair_where_their_user_messages_match(stem: str, paired: int) -> None:
    name = f"nemo_gym/{stem}.rollouts.jsonl"
    inputs = records(f"nemo_gym/{stem}.inputs.jsonl")
    here, _ = imported(name)
    found = 0
    for record, events in zip(records(name), sessions(name), strict=True):
        request = bodies(events, "session_seeded")[0].request
        if request is not None:
            value = here.value(request)
            assert value in inputs
            asked = [
                [each["content"] for each in row["responses_create_params"]["input"]
                 if each["role"] == "user"]
                for row in (value, record)
            ]  # fmt: skip
            assert asked[0] == asked[1]
            found += 1
    assert found == paired


def test_bfcl_states_are_the_recorded_ones_at_every_step() -> None:
    name = "bfcl_multi_turn/base.jsonl"
    here, _ = imported(name)
    kinds: Counter[str] = Counter()
    for record, events in zip(records(name), sessions(name), strict=True):
        state: object = decode(here.data(bodies(events, "session_seeded")[0].initial_state))
        assert state == record["initial_config"]
        given = iter(record["steps"])
        recorded = None
        for event in events:
            if isinstance(event.state_change, StateChange):
                patch = event.state_change.patch
                assert patch.media_type == STATE_PATCH
                operations: Any = decode(here.data(patch))
                kinds["whole" if operations[0][:2] == ["set", []] else "patch"] += 1
                state = apply(operations, state)
                assert digest(state) == event.state_change.digest
            if event.kind == "tool_returned":
                recorded = next(given).get("state", recorded)
                assert json.dumps(state) == json.dumps(recorded)
        assert next(given, None) is None
    assert kinds.total() == 409
    assert kinds["patch"] > 300


def test_bfcl_long_context_notes_its_last_state() -> None:
    name = "bfcl_multi_turn/long_context.jsonl"
    here, _ = imported(name)
    for record, events in zip(records(name), sessions(name), strict=True):
        (note,) = notes(events, "final_state")
        assert here.value(note.value) == record["steps"][-1]["state"]


@pytest.mark.parametrize("name", [name for name in FILES if name.startswith("swe_agent/")])
def test_trajectories_keep_every_action_observation_and_submission(name: str) -> None:
    here, _ = imported(name)
    (record,), (events,) = records(name), sessions(name)
    steps = record.get("trajectory") or []
    results = [here.data(each.result).decode() for each in bodies(events, "tool_returned")]
    if steps:
        actions = [here.data(each.arguments).decode() for each in bodies(events, "tool_called")]
        assert actions == [step["action"] for step in steps]
        assert results == [step["observation"] for step in steps]
        states = [here.data(note.value).decode() for note in notes(events, "agent_state")]
        assert [
            json.loads(text) if isinstance(step["state"], dict) else text
            for text, step in zip(states, steps, strict=True)
        ] == [step["state"] for step in steps]
        (submission,) = notes(events, "submission")
        assert here.value(submission.value) == record["info"]["submission"]
    else:
        assert results == [
            message["content"] for message in record["history"] if message["role"] == "tool"
        ]


def test_the_digests_are_those_of_every_release() -> None:
    """A change here makes another session of the same file: after 0.1.0 that is a broken format.

    To write the file anew before then: STEPLOG_REWRITE_GOLDEN=1.
    """
    found = {}
    for name in FILES:
        digests = json.dumps(imported(name)[0].digests(), sort_keys=True)
        found[name] = hashlib.sha256(digests.encode()).hexdigest()
    text = "".join(f"{digest}  {name}\n" for name, digest in found.items())
    if os.environ.get("STEPLOG_REWRITE_GOLDEN") == "1":
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()
