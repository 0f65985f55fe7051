"""What a recorder says of policy versions: each call and each message of the agent names one."""

from collections.abc import Callable
from typing import Any

import pytest

from eventlog.errors import ConfigError
from eventlog.event import MessageAdded, ToolCalled
from replay.workspace import Workspace


def named(ws: Workspace, name: str = "s") -> list[tuple[str | None, ...]]:
    """Of each call its version, of each message its first and last."""
    found: list[tuple[str | None, ...]] = []
    for event in ws.events(name):
        if isinstance(event.body, ToolCalled):
            found.append((event.body.policy,))
        elif isinstance(event.body, MessageAdded):
            found.append((event.body.policy_first, event.body.policy_last))
    return found


def test_calls_and_messages_name_the_seeds_version_unless_they_name_one(ws: Workspace) -> None:
    with ws.record("s", environment="desk", policy=12) as session:
        assert session.policy == "12"
        with session.call("add", {}):
            pass
        session.record_tool_call("add", {}, policy="x")
        session.record_message("user", "hello")
        session.record_message("assistant", "hi")
        session.record_message("assistant", "hi", policy=11)
        session.record_message("reasoning", "hm")
    assert named(ws) == [
        ("12",),
        ("x",),
        (None, None),
        ("12", "12"),
        ("11", "11"),
        ("12", "12"),
    ]
    info = ws.session("s")
    assert (info.policy, info.policies) == ("12", ("12", "x", "11"))


def test_the_version_may_change_in_the_middle_and_that_records_nothing(ws: Workspace) -> None:
    with ws.record("s", environment="desk", policy="12") as session:
        session.record_message("assistant", "hi")
        session.policy = 13
        assert (session.policy, session.step) == ("13", 1)
        session.record_message("assistant", "hi")
        session.policy = None
        session.record_tool_call("add", {})
    assert named(ws) == [("12", "12"), ("13", "13"), (None,)]
    with pytest.raises(TypeError, match="policy version"):
        session.policy = 1.5  # type: ignore[assignment]


def test_a_session_without_a_version_names_none(ws: Workspace) -> None:
    with ws.record("s", environment="desk") as session:
        session.record_message("assistant", "hi")
        session.record_tool_call("add", {})
    assert named(ws) == [(None, None), (None,)]
    assert ws.session("s").policies == ()


def _call(session: Any, policy: str | None) -> None:
    session.record_tool_call("add", {}, policy=policy)


def _message(session: Any, policy: str | None) -> None:
    session.record_message("assistant", "hi", policy=policy)


@pytest.mark.parametrize("record", [_call, _message])
def test_after_a_resume_it_is_the_last_that_was_named(
    ws: Workspace, record: Callable[[Any, str | None], None]
) -> None:
    session = ws.record("s", environment="desk", policy="12")
    record(session, None)
    record(session, "13")
    record(session, "14")
    session.record_message("user", "and?")
    session.flush()
    for at_step, policy in ((None, "14"), (2, "13"), (1, "12"), (0, "12")):
        with ws.resume("s", at_step=at_step, reopen=True) as session:
            assert session.policy == policy


def test_a_resume_of_a_session_whose_seed_names_none(ws: Workspace) -> None:
    session = ws.record("s", environment="desk")
    session.record_message("assistant", "hi", policy="7")
    assert ws.resume("s").policy == "7"
    assert ws.resume("s", at_step=0).policy is None


def test_a_branch_goes_on_with_its_parents_version_at_the_fork(ws: Workspace) -> None:
    session = ws.record("s", environment="desk", policy="12")
    session.record_message("assistant", "hi", policy="13")
    session.close()
    assert ws.resume(ws.fork("s", 1)).policy == "13"
    assert ws.resume(ws.fork("s", 0)).policy == "12"


def test_the_seed_names_the_training_and_its_step(ws: Workspace) -> None:
    with ws.record("s", environment="desk", training="run-1", training_step=7):
        pass
    seed = next(ws.events("s")).body
    assert (seed.training_session, seed.training_step) == ("run-1", 7)  # type: ignore[union-attr]
    assert (ws.session("s").training_session, ws.session("s").training_step) == ("run-1", 7)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"training": ""}, ConfigError),
        ({"training": "x" * 256}, ConfigError),
        ({"training": "a\nb"}, ConfigError),
        ({"training": 5}, TypeError),
        ({"training_step": -1}, ConfigError),
        ({"training_step": 10**12}, ConfigError),
        ({"training_step": True}, TypeError),
        ({"training_step": 1.0}, TypeError),
        ({"policy": 1.0}, TypeError),
    ],
)
def test_what_names_no_training_or_policy_is_refused_and_nothing_begun(
    ws: Workspace, fields: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        ws.record("s", environment="desk", **fields)
    assert list(ws.sessions()) == []
