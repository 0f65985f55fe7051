"""Turns: an interrupt anywhere leaves none taken, and a handle that is closed is let go of once."""

import dis
import linecache
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from eventlog.errors import LogError
from eventlog.mirror import Mirror
from eventlog.mirroring import catching_up
from eventlog.mirroring.turns import FetchTurns, Turn
from tests.support.events import EventChain
from tests.support.topic import FakeTopic

_FILES = ("mirroring/turns.py", "mirroring/file.py", "eventlog/mirror.py")


def interrupt_at(number: int, work: Callable[[], object]) -> bool:
    """Run the work with an interrupt at place `number` for one; False where it has fewer.

    Python looks for interrupts after calls, where a function begins or goes on, and in loops.
    """
    seen = 0
    last: dict[FrameType, str] = {}

    def trace(frame: FrameType, what: str, _: Any) -> Any:
        nonlocal seen
        if not frame.f_code.co_filename.endswith(_FILES):
            return None
        frame.f_trace_opcodes = True
        if what == "opcode":
            before = last.get(frame, "")
            last[frame] = dis.opname[frame.f_code.co_code[frame.f_lasti]]
            # The end of a `with` is in its first line: one that comes there still ends it.
            text = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
            is_place = before.startswith(("CALL", "RESUME", "JUMP_BACKWARD"))
            if not is_place or text.startswith("with "):
                return trace
            seen += 1
            if seen == number:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def take(turn: Turn) -> None:
    """Take the turn, and give it back."""
    with turn.taken(0.5) as is_ours:
        assert is_ours


def test_an_interrupt_at_any_place_leaves_no_turn_taken() -> None:
    number = 1
    turn = Turn()
    while interrupt_at(number, lambda: take(turn)):
        take(turn)
        number += 1
    assert number > 4


def test_a_turn_is_had_by_one_at_a_time_and_by_everyone_at_last() -> None:
    turn = Turn()
    inside, most, done = 0, 0, 0

    def work() -> None:
        nonlocal inside, most, done
        for _ in range(50):
            with turn.taken() as is_ours:
                assert is_ours
                inside += 1
                most = max(most, inside)
                time.sleep(0.0001)
                done += 1
                inside -= 1

    with ThreadPoolExecutor(4) as pool:
        for each in [pool.submit(work) for _ in range(4)]:
            each.result()
    assert (most, done) == (1, 200)
    with turn.taken(), turn.taken(0.01) as is_ours:
        assert not is_ours


@pytest.mark.parametrize("what", ["refresh", "scan"])
def test_an_interrupt_at_any_place_of_a_question_leaves_the_mirror_usable(
    topic: FakeTopic, mirror: Mirror, what: str
) -> None:
    chain = EventChain("s")
    topic.write([("s", chain.seed(writer="w").data)])
    mirror.refresh()
    part, number, is_hit = topic.part_of("s"), 1, True

    def ask() -> None:
        if what == "scan":
            mirror.highest_attempt("s", part, timeout_s=60)
        else:
            mirror.refresh(timeout_s=60)

    while is_hit:
        topic.write([("s", chain.call().data)])
        is_hit = interrupt_at(number, ask)
        start = time.monotonic()
        ask()
        assert time.monotonic() - start < 20, number
        number += 1
    assert number > 10


def test_a_lock_file_in_use_is_closed_by_who_uses_it_last(tmp_path: Path) -> None:
    turns = FetchTurns(tmp_path / "mirror.db")
    with turns.wanting([0]):
        assert turns.is_ours(lambda: None)
        turns.close()
        # Its number is nobody else's yet.
        assert _is_open(turns)
        with pytest.raises(LogError, match="is closed"):
            turns.is_ours(lambda: None)
    assert not _is_open(turns)
    with pytest.raises(LogError, match="is closed"), turns.wanting([0]):
        pass


def test_who_meets_a_handle_that_is_being_closed_is_told_so(
    topic: FakeTopic, mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catching_up, "CLOSE_S", 0.01)
    begun, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        assert go_on.wait(20)

    topic.before_fetch = wait
    topic.write([("s", EventChain("s").seed(writer="w").data)])
    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(mirror.refresh) for _ in range(2)]
        assert begun.wait(20)
        mirror.close()
        go_on.set()
        for each in asked:
            with pytest.raises(LogError, match=r"this handle on .* is closed"):
                each.result()
    mirror.close()


def _is_open(turns: FetchTurns) -> bool:
    return turns._lock._descriptor is not None
