"""Real traces through the workspace: every file imports, every session replays to every step."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from replay.workspace import Workspace, open_workspace
from tests.support.data import ROOT, data_path
from tests.support.imported_states import import_all, state_lines
from tests.support.second_python import second_python

SCRIPT = "from tests.support.imported_states import main; main()"
FOLDERS = ("nemo_gym", "tau_bench_airline", "bfcl_multi_turn", "swe_agent")


def trace_files() -> list[Path]:
    """The files that hold sessions: not the task inputs, nor what was derived from sessions."""
    return [
        file
        for folder in FOLDERS
        for file in sorted(data_path("traces", folder).iterdir())
        if ".inputs." not in file.name and not file.name.startswith("gold.")
    ]


class Imported:
    """The workspace, what each import brought, and a line for each step of each session."""

    def __init__(self, ws: Workspace) -> None:
        self.ws = ws
        self.brought = import_all(ws, trace_files())
        self.lines = list(state_lines(ws))


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Imported]:
    with open_workspace(tmp_path_factory.mktemp("imported") / "ws") as ws:
        yield Imported(ws)


def test_every_session_replays_to_every_step(imported: Imported) -> None:
    sessions = {info.session_id: info for info in imported.ws.sessions()}
    assert dict(imported.brought) == {name: info.step_count for name, info in sessions.items()}
    assert len(imported.lines) == sum(info.step_count for info in sessions.values()) > 6_900
    reducers = {line.rsplit(" ", 3)[1] for line in imported.lines}
    assert reducers == {"captured", "transcript"}


def test_a_transcript_grows_step_by_step_to_all_that_was_said(imported: Imported) -> None:
    transcripts = [info for info in imported.ws.sessions() if info.state_coverage == "none"]
    for info in transcripts[::4]:
        before = {"messages": 0, "calls": 0, "verified": 0}
        events = list(imported.ws.events(info.session_id))
        for event in events:
            state: Any = imported.ws.replay(info.session_id, event.step).state
            now = {key: len(state[key]) for key in before}
            added = {
                "message_added": "messages",
                "tool_called": "calls",
                "verified": "verified",
            }.get(event.kind)
            assert now == {key: count + (key == added) for key, count in before.items()}
            before = now
            if event.kind == "tool_returned":
                (line,) = [one for one in state["calls"] if one["return_step"] == event.step]
                assert line["call_step"] == event.body.called_step  # type: ignore[union-attr]
        assert state["closed"] == "imported"
        rows = sorted(imported.ws.calls(info.session_id), key=lambda row: row.call_step)
        assert [(row.call_step, row.return_step, row.status) for row in rows] == [
            (line["call_step"], line["return_step"], line["status"]) for line in state["calls"]
        ]


def test_bfcl_states_are_the_files_at_every_step_and_have_its_hash(imported: Imported) -> None:
    path = data_path("traces", "bfcl_multi_turn", "base.jsonl")
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    names = [info.session_id for info in imported.ws.sessions() if info.state_coverage == "full"]
    assert len(names) == len(records) == 100
    compared = 0
    for name, record in zip(names, records, strict=True):
        returns = [e.step for e in imported.ws.events(name) if e.kind == "tool_returned"]
        state = None
        for step, given in zip(returns, record["steps"], strict=True):
            state = given.get("state", state)
            replayed = imported.ws.replay(name, step).state
            assert json.dumps(replayed) == json.dumps(state), (name, step)
            assert published_hash(replayed) == given["state_sha256"], (name, step)
            compared += 1
    assert compared == 583


def published_hash(state: object) -> str:
    """As the data's recipe has it: SHA-256 of sorted-key compact JSON, not ASCII-escaped."""
    text = json.dumps(state, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return sha256(text.encode("utf-8")).hexdigest()


def test_importing_again_adds_nothing(imported: Imported) -> None:
    end = imported.ws.log.end_cut()
    again = import_all(imported.ws, trace_files())
    assert again == [(name, 0) for name, _ in imported.brought]
    assert imported.ws.log.end_cut() == end


def test_a_check_finds_every_imported_session_whole(imported: Imported) -> None:
    verdicts = [report.verdict for report in imported.ws.check()]
    assert verdicts == ["ok"] * len(imported.brought)


def test_snapshots_of_imported_sessions_change_no_state(imported: Imported) -> None:
    sessions = [info for info in imported.ws.sessions() if info.step_count > 30]
    for info in sessions[::6]:
        middle = info.step_count // 2
        expected = imported.ws.replay(info.session_id).state_bytes
        imported.ws.take_snapshot(info.session_id, middle)
        replayed = imported.ws.replay(info.session_id)
        assert (replayed.from_snapshot, replayed.skipped) == (middle, ())
        assert replayed.state_bytes == expected


@pytest.mark.parametrize("which", ["this Python", "second Python"])
def test_another_process_and_folder_give_the_same_states(
    imported: Imported, tmp_path: Path, which: str
) -> None:
    """Other hash seeds, another workspace folder, another version of Python: the same digests."""
    python = second_python() if which == "second Python" else sys.executable
    files = [str(file) for file in reversed(trace_files())]
    done = subprocess.run(
        [python, "-c", SCRIPT, str(tmp_path / "elsewhere"), *files],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "4711", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert sorted(done.stdout.splitlines()) == sorted(imported.lines)
