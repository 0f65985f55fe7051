"""Arguments no one should give: told by name, never as another library's exception."""

from typing import Any

import pytest

from eventlog.errors import ValueNotEncodableError
from eventlog.log import SessionFilter
from replay.workspace import Workspace

HUGE = 10**400


@pytest.mark.parametrize(
    ("where", "found"),
    [
        (SessionFilter(reward_max=HUGE), 1),
        (SessionFilter(reward_min=-HUGE), 1),
        (SessionFilter(reward_min=HUGE), 0),
        (SessionFilter(reward_max=-HUGE), 0),
        (SessionFilter(reward_max=2**70), 1),
        (SessionFilter(last_time_max=2**70), 1),
        (SessionFilter(last_time_min=2**70), 0),
        (SessionFilter(last_time_min=-(2**70)), 1),
        (SessionFilter(last_time_max=-(2**70)), 0),
    ],
)
def test_a_bound_beyond_all_numbers_was_an_overflow_error(
    ws: Workspace, where: SessionFilter, found: int
) -> None:
    with ws.record("s", environment="desk") as session:
        session.record_verification(1.0, verifier="v")
    assert len(list(ws.sessions(where))) == found


@pytest.mark.parametrize("expect", [(5,), ("s",), (None,), (("s", 1, b""),)])
def test_an_expectation_that_is_none_was_an_attribute_error(ws: Workspace, expect: Any) -> None:
    ws.record("s", environment="desk")
    for session in ("s", None):
        with pytest.raises(TypeError, match="expect takes Expectations, not"):
            ws.check(session, expect=expect)


def test_a_late_verdict_beyond_every_float_claims_nothing(ws: Workspace) -> None:
    ws.record("s", environment="desk").close()
    with pytest.raises(ValueNotEncodableError) as caught:
        ws.record_late_verification("s", HUGE, verifier="v")
    assert caught.value.path == "$.reward"
    with pytest.raises(ValueNotEncodableError):
        ws.record_late_verification("s", 1.0, verifier="v", components={"a": HUGE})
    with pytest.raises(ValueNotEncodableError):
        ws.record_late_verification("s", 1.0, verifier="v", duration_us=-1)
    assert ws.session("s").head.step == 1


def test_a_float_is_no_step(ws: Workspace) -> None:
    step: Any = 0.0
    ws.record("s", environment="desk")
    with pytest.raises(TypeError, match="a step is an int"):
        ws.replay("s", step)
