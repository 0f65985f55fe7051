"""steplog's own sessions are nobody's to go on with, and a training takes over no other session.

`ws.resume` of a training's session took its trainer's claim; a training of the name of a session of
an environment went on with that.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from eventlog.errors import ConfigError
from replay.workspace import Workspace, open_workspace
from tests.support.command import Command
from tests.support.own_sessions import own_session, training_session


@pytest.fixture
def ws(tmp_path: Path) -> Iterator[Workspace]:
    with open_workspace(tmp_path / "ws") as opened:
        yield opened


OWN = ["steplog.training", "steplog.checkpoint", "steplog.policy", "steplog.later"]


@pytest.mark.parametrize("environment", OWN)
def test_a_session_of_steplogs_own_is_not_gone_on_with(ws: Workspace, environment: str) -> None:
    held = own_session(ws, "own", environment)
    for claim in (
        lambda: ws.resume("own"),
        lambda: ws.resume("own", at_step=0, reopen=True),
        lambda: ws.record("own", environment="desk", if_exists="resume"),
        lambda: ws.record_late_verification("own", 1.0, verifier="v"),
    ):
        with pytest.raises(ConfigError, match=r"'own' is one of steplog's own") as caught:
            claim()
        assert environment in caught.value.message
        assert caught.value.session_id == "own"
    assert ("ws.training('own')" in caught.value.hint) == (environment == "steplog.training")
    held.annotate("still mine", 1)
    held.flush()
    held.close()
    with pytest.raises(ConfigError, match="steplog's own"):
        ws.resume("own", reopen=True)
    assert ws.session("own").attempt == held.attempt


@pytest.mark.parametrize("environment", OWN)
def test_no_session_is_recorded_in_an_environment_of_steplogs_own(
    ws: Workspace, environment: str
) -> None:
    with pytest.raises(ConfigError, match=f"{environment!r} is one of steplog's own"):
        ws.record("s", environment=environment)
    assert list(ws.sessions()) == []
    ws.record("s", environment="steplogs").close()


def test_the_command_closes_no_training_from_under_its_trainer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_workspace(tmp_path / "ws") as ws:
        run = training_session(ws, "run-1")
        ran = Command(tmp_path / "ws", capsys)("close", "run-1")
        assert ran.code == 2
        assert "steplog's own" in ran.err
        run.annotate("still mine", 1)
        run.close()


@pytest.mark.parametrize("environment", ["desk", "steplog.checkpoint"])
def test_a_training_takes_over_no_session_of_another_environment(
    ws: Workspace, environment: str
) -> None:
    own_session(ws, "desk", environment).close()
    head = ws.session("desk").head
    with pytest.raises(ConfigError, match=f"no training, but of environment '{environment}'"):
        training_session(ws, "desk")
    assert ws.session("desk").head == head
    pytest.importorskip("torch", reason="torch is not installed: entering a training not shown")
    with pytest.raises(ConfigError, match="no training"), ws.training("desk"):
        pass
    assert ws.session("desk").head == head


def test_a_training_is_claimed_again_and_again(ws: Workspace) -> None:
    first = training_session(ws, "run-1")
    assert training_session(ws, "run-1").attempt == first.attempt + 1
    training_session(ws, "run-1").close()
    assert training_session(ws, "run-1").attempt == first.attempt + 3
