"""A handle tells how its save stands, and what cannot be a time to wait."""

from concurrent.futures import Future
from math import inf, nan
from typing import Any

import pytest

from eventlog.errors import CheckpointError
from snapshots.checkpoints.manifest import CheckpointRef
from snapshots.save_handle import SaveHandle

REF = CheckpointRef(7, "one", "0" * 64)


def test_waiting_in_vain_says_for_what() -> None:
    """The error had no text."""
    handle = SaveHandle(7, Future())
    for timeout_s in (0, 0.001):
        with pytest.raises(TimeoutError, match=r"step 7 is still under way after 0(\.001)? s"):
            handle.wait(timeout_s)


@pytest.mark.parametrize("timeout_s", [-1, -0.5, nan, "1", True])
def test_what_is_no_time_is_refused_whether_the_save_has_ended_or_not(timeout_s: Any) -> None:
    """It ended in an error of Python's own, or in a timeout without a text."""
    for handle in (SaveHandle(7, Future()), SaveHandle.ended(REF)):
        with pytest.raises(ValueError, match="timeout_s must be 0 or more seconds, or None, not"):
            handle.wait(timeout_s)


def test_an_ended_save_is_not_waited_for() -> None:
    for timeout_s in (None, 0, 1, inf):
        assert SaveHandle.ended(REF).wait(timeout_s) == REF


def test_the_error_of_a_save_comes_as_often_as_it_is_asked_for() -> None:
    """Also where the save itself has met a timeout."""
    for error in (CheckpointError("the disk is full", hint=""), TimeoutError("the disk is slow")):
        future: Future[CheckpointRef] = Future()
        future.set_exception(error)
        handle = SaveHandle(7, future)
        for _ in range(2):
            with pytest.raises(type(error), match="the disk is"):
                handle.wait(1)
        assert handle.untold_error() is None
