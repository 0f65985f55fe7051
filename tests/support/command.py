"""Running the command in a test: in this process, its answers read as strictly as JSON allows."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from eventlog.content import JsonText
from eventlog.recorder import SessionRecorder
from replay.cli.main import run_command
from replay.workspace import Workspace, open_workspace

Row = Mapping[str, Any]


class Ran(NamedTuple):
    """What one run of the command answered."""

    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[Any]:
        """The JSON of each line of stdout, which is UTF-8, of keys that come once, without NaN."""
        self.out.encode("utf-8")
        return [strict_json(line) for line in self.out.split("\n")[:-1]]

    @property
    def row(self) -> Any:
        """The one JSON line of stdout."""
        (row,) = self.rows
        return row

    @property
    def lines(self) -> list[list[str]]:
        """The cells of each line of a table, its headings first."""
        return [line.split("\t") for line in self.out.splitlines()]


class Command:
    """`steplog` on one workspace."""

    def __init__(self, workspace: Path | str, capture: pytest.CaptureFixture[str]) -> None:
        self.workspace = workspace
        self._capture = capture

    def __call__(self, *arguments: object) -> Ran:
        """Run it; what it printed, and its exit code."""
        self._capture.readouterr()
        code = run_command(["--workspace", str(self.workspace), *map(str, arguments)])
        return Ran(code, *self._capture.readouterr())

    def rows(self, *arguments: object) -> list[Any]:
        """Run it with `--json`; the rows of a run that succeeded."""
        ran = self("--json", *arguments)
        assert (ran.code, ran.err) == (0, "")
        return ran.rows

    def row(self, *arguments: object) -> Any:
        """Run it with `--json`; the one row of a run that succeeded."""
        (row,) = self.rows(*arguments)
        return row

    def at(self, workspace: Path | str) -> "Command":
        """The same on another workspace."""
        return Command(workspace, self._capture)

    def open(self) -> Workspace:
        """The workspace itself."""
        return open_workspace(self.workspace)


def strict_json(text: str) -> Any:
    """A JSON text's value; refuses what only Python takes for JSON."""
    return json.loads(text, parse_constant=_refuse, object_pairs_hook=_object)


def _refuse(name: str) -> Any:
    raise AssertionError(f"{name} is not JSON")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    assert len(entries) == len(pairs), f"a key twice in {pairs}"
    return entries


BIG = "x" * 5_000_000


def record_desk(ws: Workspace, name: str = "desk/1", **fields: Any) -> None:
    """A session of 12 steps: calls that end in every way, a message, a note, a reward, a blob."""
    state: dict[str, Any] = {"n": 0, "orders": {"A1": {"price": 14}}, 3: (1, 2)}
    with ws.record(name, environment="desk", state=lambda: state, **fields) as session:
        add(session, state, '{"by": 1}', JsonText('{"n": 1.0}'))
        with pytest.raises(KeyError), session.call("find", {"order": "A9"}, call_id="c2"):
            raise KeyError("A9")
        session.record_message("assistant", "thinking\n\x1b[31mred")
        step = session.record_tool_call("read", ("big",))
        session.record_tool_return(step, BIG, reward=0.5)
        session.record_tool_call("wait", {})
        session.annotate("note", {"by": "me"}, about_step=2)
        session.record_verification(1.0, verifier="rules", components={"policy": 1.0})


def add(session: SessionRecorder, state: dict[str, Any], arguments: object, result: object) -> None:
    """One call that changes the state."""
    with session.call("add", arguments, call_id="c1") as call:
        state["n"] += 1
        call.result = result
