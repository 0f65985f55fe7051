"""A state is handed to an environment whole, or not at all: never half of it closed."""

import random
import subprocess
import sys
from pathlib import Path

import pytest

from eventlog.canonical import Registered
from eventlog.errors import CodecMissingError
from replay.workspace import open_workspace
from tests.support.sources import ROOT

RECORDING = """
import random, sys
from dataclasses import dataclass
from eventlog.canonical import register_type
from replay.workspace import open_workspace

@dataclass
class Order:
    item: str
    rng: object

register_type(Order, "desk.order")
state = {"orders": {"A1": Order("lamp", random.Random(3))}, "n": 0}
with open_workspace(sys.argv[1]) as ws:
    with ws.record("s", environment="desk", state=lambda: state) as session:
        with session.call("count", {}) as call:
            state["n"] += 1
        assert isinstance(ws.replay("s", 1).state["orders"]["A1"], Order)
        assert isinstance(session.state["orders"]["A1"].rng, random.Random)
        session.release()
"""


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """A workspace whose session `s` holds a type that this process does not know."""
    command = [sys.executable, "-c", RECORDING, str(tmp_path / "ws")]
    subprocess.run(command, cwd=ROOT, check=True, timeout=60)
    return tmp_path / "ws"


def test_a_type_not_registered_here_is_an_error_and_no_hollow_state(recorded: Path) -> None:
    with open_workspace(recorded) as ws:
        replayed = ws.replay("s", 2)
        with pytest.raises(CodecMissingError, match=r"desk\.order at \$\.orders\.A1") as raised:
            _ = replayed.state
        assert (raised.value.name, raised.value.path) == ("desk.order", "$.orders.A1")
        session = ws.resume("s")
        with pytest.raises(CodecMissingError, match=r"desk\.order"):
            _ = session.state


def test_it_folds_compares_and_checks_closed(recorded: Path) -> None:
    with open_workspace(recorded) as ws:
        state = ws.replay("s", 2).opaque_state
        assert isinstance(state, dict)
        order = state["orders"]["A1"]
        assert isinstance(order, Registered)
        assert order.name == "desk.order"
        (change,) = ws.diff(("s", 0), ("s", 2)).changes
        assert (change.op, change.path, change.before, change.after) == ("replace", ("n",), 0, 1)
        assert [report.verdict for report in ws.check()] == ["ok"]


def test_the_packages_own_types_come_back_live(tmp_path: Path) -> None:
    state = {"rng": random.Random(7)}
    with open_workspace(tmp_path) as ws:
        with ws.record("s", environment="desk", state=state):
            pass
        restored = ws.replay("s", 0).state
        assert isinstance(restored, dict)
        assert restored["rng"].random() == state["rng"].random()
        assert restored["rng"] is not state["rng"]


def test_a_listed_session_is_named_as_in_reports(tmp_path: Path) -> None:
    with open_workspace(tmp_path) as ws:
        with ws.record("s", environment="desk"):
            pass
        (info,) = ws.sessions()
        assert info.session == info.session_id == "s"
