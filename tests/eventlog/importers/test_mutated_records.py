"""Real records with something wrong in them: a session or a report, never a crash, never half.

Seeded: the same mutations each time. Values of other types, missing and repeated members, odd
numbers, flipped bytes and cuts.
"""

import json
import random
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from eventlog.blob_store import MemoryBlobStore
from eventlog.event import SessionClosed
from eventlog.importers.import_file import FORMATS, import_file
from tests.support.data import data_path
from tests.support.imported import Imported
from tests.support.scale import scaled

FILES = {
    "gym-rollouts": [
        "nemo_gym/aviary.rollouts.jsonl",
        "nemo_gym/blackjack.rollouts.jsonl",
        "nemo_gym/example_session_state_mgmt.rollouts.jsonl",
        "nemo_gym/example_tool_call_multireward.rollouts.jsonl",
        "nemo_gym/xlam_fc.rollouts.jsonl",
    ],
    "chat": ["tau_bench_airline/gpt-4o-airline.trial0.jsonl"],
    "bfcl": ["bfcl_multi_turn/base.jsonl"],
    "swe-agent": [
        "swe_agent/1_function_calling_simple.traj",
        "swe_agent/0_swe-agent__test-repo-i1.traj",
    ],
}
OTHER_VALUES: list[Any] = [
    None,
    True,
    0,
    -1,
    1.5,
    10**30,
    10**400,
    float("nan"),
    float("-inf"),
    "",
    "text",
    "\ud83d",
    "\x00",
    [],
    {},
    [[]],
    [None],
    {"role": "user"},
    {"name": {}},
]


@cache
def records(format_name: str) -> list[Any]:
    found = []
    for name in FILES[format_name]:
        data = data_path("traces", *name.split("/")).read_bytes()
        lines = [data] if name.endswith(".traj") else data.splitlines()[:12]
        found += [json.loads(line) for line in lines]
    return found


def places(value: Any, depth: int = 0) -> list[tuple[Any, Any]]:
    """Every (container, key) of the value; those deep inside states and texts are thinned out."""
    found: list[tuple[Any, Any]] = []
    keys = list(value) if isinstance(value, dict) else range(len(value))
    for key in keys:
        found.append((value, key))
        if isinstance(value[key], dict | list) and depth < 7:
            found += places(value[key], depth + 1)
    return found


def mutate(record: Any, chance: random.Random) -> Any:
    record = json.loads(json.dumps(record))
    for _ in range(chance.randrange(1, 4)):
        found = places(record)
        if not found:
            break
        shallow = [place for place in found if isinstance(place[1], str)]
        container, key = chance.choice(shallow if chance.random() < 0.7 and shallow else found)
        what = chance.randrange(5)
        if what == 0:
            del container[key]
        elif what == 1 and isinstance(container, list):
            container.insert(key, container[key])
        elif what == 2 and isinstance(container, list) and len(container) > 1:
            chance.shuffle(container)
        elif what == 3 and isinstance(container, dict):
            container[chance.choice([key + "_", "type", "role", "id", "state"])] = container.pop(
                key
            )
        else:
            container[key] = chance.choice(OTHER_VALUES)
    return record


def mutated_lines(format_name: str, count: int, seed: int) -> list[bytes]:
    chance = random.Random(f"{format_name}/{seed}")
    lines = []
    for _ in range(count):
        line = json.dumps(mutate(chance.choice(records(format_name)), chance)).encode()
        if chance.random() < 0.25:  # damage the text as well
            at = chance.randrange(len(line))
            line = chance.choice(
                [
                    line[:at],
                    line[:at] + line[at + chance.randrange(1, 9) :],
                    line[:at] + bytes([line[at] ^ 1 << chance.randrange(8)]) + line[at + 1 :],
                    line[:at] + line[at : at + 40] + line[at:],
                ]
            )
        lines.append(line.replace(b"\n", b" ").replace(b"\r", b" "))
    return lines


def assert_each_is_whole_or_told(here: Imported, path: Path, format_name: str) -> list[bool]:
    told = []
    for outcome in import_file(path, here.log, here.blobs, format=format_name):
        told.append(outcome.failed)
        if outcome.failed:
            assert outcome.session_id is None
            assert f"byte offset {outcome.byte_offset}" in str(outcome.problem)
            continue
        events = here.events(outcome.session_id)
        assert [event.step for event in events] == list(range(len(events)))
        closed = events[-1].body
        assert isinstance(closed, SessionClosed)
        assert closed.event_count == len(events) - 1
    return told


@pytest.mark.parametrize("format_name", FORMATS)
def test_mutated_records_are_a_session_or_a_report(format_name: str, tmp_path: Path) -> None:
    here = Imported()
    count = scaled(150, 3000)
    if format_name == "swe-agent":
        told = []
        for number, line in enumerate(mutated_lines(format_name, count, seed=3)):
            if not line.strip():
                continue
            path = tmp_path / f"{number}.traj"
            path.write_bytes(line)
            told += assert_each_is_whole_or_told(here, path, format_name)
    else:
        path = tmp_path / "mutated.jsonl"
        lines = mutated_lines(format_name, count, seed=3)
        path.write_bytes(b"\n".join(lines) + b"\n")
        told = assert_each_is_whole_or_told(here, path, format_name)
    assert len(told) > 0.9 * count
    assert 0.1 < sum(told) / len(told) < 0.9, "mutations too tame or too wild to prove anything"
    assert list(here.log.find_damage()) == []


@pytest.mark.parametrize("format_name", FORMATS)
def test_records_of_other_formats_are_reports(format_name: str, tmp_path: Path) -> None:
    for other in FORMATS:
        if other == format_name:
            continue
        path = tmp_path / f"{other}.jsonl"
        path.write_text(json.dumps(records(other)[0]))
        here = Imported()
        for outcome in import_file(path, here.log, MemoryBlobStore(), format=format_name):
            assert outcome.failed
        assert list(here.log.list_sessions()) == []
