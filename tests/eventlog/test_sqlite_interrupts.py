"""Ctrl-C in the middle of a submission: whoever uses the log after it is not held up."""

import itertools
import threading
from pathlib import Path

import pytest

from eventlog.keeping.awaited import Promised
from tests.support.processes import finish, python_script

TRACED = """
import faulthandler, sys, threading
faulthandler.dump_traceback_later(240, exit=True)
from eventlog.sqlite_log import SqliteLog
from tests.support.recorded import append_all, data_of, seeded_chain

POINT = int(sys.argv[2])
FILES = ("/keeping/log_writer.py", "/fork_gate.py", "/awaited.py", "/threading.py")
left = POINT

def trace(frame, event, arg):
    global left
    name = frame.f_code.co_filename
    if event != "call" or not name.endswith(FILES):
        return None
    if left == 0:
        left = -1
        raise KeyboardInterrupt
    left -= 1
    return None

log = SqliteLog(sys.argv[1])
chain = seeded_chain(log, "s")
event = chain.call()
sys.settrace(trace)
try:
    log.submit_events("s", [event], expected_step=4).result()
    list(log.read_session("s"))
except KeyboardInterrupt:
    pass
sys.settrace(None)
append_all(log, [event])
append_all(log, [chain.returned()])
assert data_of(log.read_session("s")) == [each.data for each in chain.events]
log.close()
print("reached" if left == -1 else "beyond")
"""


def test_an_interrupt_at_any_call_of_a_submission_holds_nobody_up(tmp_path: Path) -> None:
    """As Ctrl-C does, the interrupt comes where a function is entered."""
    for point in itertools.count():
        out = finish(python_script(TRACED, tmp_path / f"log{point}.db", str(point)))
        if out.strip() == "beyond":
            break
    assert point > 5


def test_a_waiter_interrupted_while_it_holds_a_future_does_not_stop_the_others() -> None:
    future: Promised[int] = Promised()
    found: list[int] = []
    waiters = [threading.Thread(target=lambda: found.append(future.result())) for _ in range(3)]
    for waiter in waiters:
        waiter.start()
    with pytest.raises(TimeoutError):
        future.result(0.01)
    future.set_result(7)
    # What an interrupt between taking the lock and giving it back leaves:
    future._given.acquire()
    for waiter in waiters:
        waiter.join(20)
    assert found == [7, 7, 7]
    assert future.result(1) == 7
