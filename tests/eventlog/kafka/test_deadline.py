"""A call that hangs is left behind, and what it brings too late is thrown away."""

import sys
import threading
from types import FrameType
from typing import Any

import pytest

from eventlog.kafka.deadline import DeadlinePassed, LateCall, TimedLock, run_within

FAULTS = (OSError,)


def test_what_the_call_returns_or_raises_comes_out() -> None:
    assert run_within(10, lambda: 7, faults=FAULTS) == 7
    assert run_within(10, lambda: None, faults=FAULTS) is None

    def fail() -> int:
        raise OSError("no route")

    with pytest.raises(OSError, match="no route"):
        run_within(10, fail, faults=FAULTS)


def test_a_call_that_hangs_is_waited_for_again() -> None:
    may_go_on = threading.Event()
    call = LateCall(lambda: may_go_on.wait(30), faults=FAULTS)
    with pytest.raises(DeadlinePassed):
        call.wait(0.01)
    with pytest.raises(DeadlinePassed):
        call.wait(-1)
    may_go_on.set()
    assert call.wait(10)
    assert call.wait(0)


def test_a_late_result_is_thrown_away_even_if_that_fails() -> None:
    may_go_on, thrown = threading.Event(), threading.Event()

    def throw(result: str) -> None:
        thrown.set()
        raise OSError(result)

    def work() -> str:
        may_go_on.wait(30)
        return "late"

    call = LateCall(work, faults=FAULTS, discard=throw)
    call.leave()
    may_go_on.set()
    assert thrown.wait(10)
    early = LateCall(lambda: "early", faults=FAULTS, discard=throw)
    assert early.wait(10) == "early"
    thrown.clear()
    early.leave()
    assert thrown.is_set()
    with pytest.raises(RuntimeError, match="without a result"):
        early.wait(1)


def test_a_look_ends_the_wait() -> None:
    may_go_on = threading.Event()
    call = LateCall(lambda: may_go_on.wait(30), faults=FAULTS)

    def look() -> None:
        raise KeyError("refused")

    with pytest.raises(KeyError):
        call.wait(30, look)
    may_go_on.set()


def is_free(lock: TimedLock) -> bool:
    """Whether another thread can hold it."""

    def hold() -> bool:
        try:
            return lock.hold(0.0, lambda: True)
        except DeadlinePassed:
            return False

    return run_within(10, hold, faults=FAULTS)


def test_a_lock_that_is_held_is_waited_for_no_longer_than_wanted() -> None:
    lock = TimedLock()
    assert lock.hold(1.0, lambda: is_free(lock)) is False
    assert is_free(lock)
    with pytest.raises(ZeroDivisionError):
        lock.hold(1.0, lambda: 1 // 0)
    assert is_free(lock)


def test_a_ctrl_c_at_any_line_keeps_no_lock() -> None:
    moments = 0
    while True:
        lock, left = TimedLock(), moments

        def trace(frame: FrameType, event: str, _: Any) -> Any:
            nonlocal left
            if frame.f_code.co_filename != TimedLock.hold.__code__.co_filename:
                return None
            if event == "line":
                left -= 1
                if left < 0:
                    sys.settrace(None)
                    raise KeyboardInterrupt
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            lock.hold(1.0, lambda: None)
        except KeyboardInterrupt:
            moments += 1
        else:
            break
        finally:
            sys.settrace(before)
        assert is_free(lock), moments
    assert moments > 8
