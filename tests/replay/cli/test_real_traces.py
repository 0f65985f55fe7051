"""Every recorded trace through the command: imported, listed, shown, replayed, checked."""

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from eventlog.json_form import from_json_form
from tests.support.command import Command, strict_json
from tests.support.data import data_path
from tests.support.scale import scaled
from tests.support.second_python import find_second_python
from tests.support.sources import ROOT

FOLDERS = ("nemo_gym", "tau_bench_airline", "bfcl_multi_turn", "swe_agent")
SESSION_STRIDE = scaled(3, 1)
"""One session of so many is replayed; tests of the importers replay each to every step."""


def trace_files(folder: str) -> list[Path]:
    """The traces of a folder; not what only belongs to them."""
    found = sorted(data_path("traces", folder).iterdir())
    return [file for file in found if not file.name.startswith("gold.")]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with every trace of the four folders, imported by the real command."""
    workspace = tmp_path_factory.mktemp("traces") / "ws"
    files = [str(file) for folder in FOLDERS for file in trace_files(folder)]
    done = run("import", *files, workspace=workspace)
    assert done.returncode == 0, done.stderr.decode()
    rows = rows_of(done.stdout)
    assert all(row["events"] > 0 for row in rows)
    again = run("import", *files, workspace=workspace)
    assert [row["session"] for row in rows_of(again.stdout)] == [row["session"] for row in rows]
    assert {row["events"] for row in rows_of(again.stdout)} == {0}
    return workspace


def run(
    *arguments: str, workspace: Path, python: str = sys.executable, seed: str = "0"
) -> "subprocess.CompletedProcess[bytes]":
    """The real command, with `--json`."""
    return subprocess.run(
        [python, "-m", "replay.cli", "--json", "-w", str(workspace), *arguments],
        cwd=ROOT,
        capture_output=True,
        check=False,
        env={"PYTHONHASHSEED": seed},
        timeout=300,
    )


def rows_of(data: bytes) -> list[Any]:
    """Strict JSON, one object a line."""
    return [strict_json(line) for line in data.decode("utf-8").split("\n")[:-1]]


@pytest.fixture
def traces(filled: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    """The command on that workspace, which is only read."""
    return Command(filled, capsys)


def test_every_session_is_listed(traces: Command) -> None:
    rows = traces.rows("sessions")
    assert len(rows) == len({row["session"] for row in rows}) >= 290
    assert {row["status"] for row in rows} == {"closed"}
    formats = Counter(row["session"].split("/")[0] for row in rows)
    assert formats["chat"] == 100
    assert formats["bfcl"] == 124
    assert set(formats) == {"chat", "bfcl", "gym-rollouts", "swe-agent"}
    rewards = Counter(row["reward_from"] for row in rows)
    assert rewards["verified"] >= 160


def test_each_session_replays_and_its_digests_hold(traces: Command) -> None:
    for session in traces.rows("sessions")[::SESSION_STRIDE]:
        last = session["step_count"] - 1
        for step in {0, last // 2, last}:
            row = traces.row("replay", session["session"], "--step", step)
            assert (row["session"], row["step"]) == (session["session"], step)
            from_json_form(row["state"])


def test_each_call_of_a_transcript_is_a_row_of_calls(traces: Command) -> None:
    for session in traces.rows("sessions", "--prefix", "gym-rollouts/"):
        calls = traces.rows("calls", session["session"])
        state = traces.row("replay", session["session"])["state"]
        told = [(one["call_step"], one["return_step"], one["status"]) for one in state["calls"]]
        rows = [(one["call_step"], one["return_step"], one["status"]) for one in calls]
        assert sorted(told, key=str) == sorted(rows, key=str)


def test_every_event_is_shown_strictly(traces: Command) -> None:
    total = sum(row["step_count"] for row in traces.rows("sessions"))
    kinds = Counter(row["kind"] for row in traces.rows("tail", "--lines", total))
    assert sum(kinds.values()) == total
    assert kinds["session_seeded"] == kinds["session_closed"] == len(traces.rows("sessions"))


def test_everything_checks(traces: Command) -> None:
    rows = traces.rows("check")
    assert {row["verdict"] for row in rows} == {"ok"}


def test_lines_for_people_too(traces: Command) -> None:
    for session in traces.rows("sessions")[:: scaled(20, 1)]:
        assert traces("show", session["session"]).code == 0
        assert traces("show", session["session"], "--events").code == 0


def test_the_same_files_elsewhere_give_the_same_digests(filled: Path, tmp_path: Path) -> None:
    files = [str(file) for folder in reversed(FOLDERS) for file in trace_files(folder)]
    second = find_second_python()
    elsewhere = tmp_path / "elsewhere"
    python = second.path if second.path is not None else sys.executable
    done = run("import", *files, workspace=elsewhere, python=str(python), seed="7")
    assert done.returncode == 0, done.stderr.decode()
    assert digests(elsewhere) == digests(filled)


def digests(workspace: Path) -> dict[tuple[str, int], str]:
    """The event digest of each session's step."""
    events = rows_of(run("tail", "-n", "1000000", workspace=workspace).stdout)
    return {(row["session"], row["step"]): row["event_digest"] for row in events}
