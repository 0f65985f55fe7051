"""`Promised`: a future like any other, which makes a condition only for who asks for one."""

import threading
from concurrent.futures import CancelledError, InvalidStateError, as_completed, wait

import pytest

from eventlog.keeping.awaited import Promised


def test_an_answer_is_given_once_and_read_often() -> None:
    promised: Promised[int] = Promised()
    assert (promised.done(), promised.running()) == (False, False)
    assert promised.set_running_or_notify_cancel()
    assert promised.running()
    promised.set_result(3)
    assert (promised.result(), promised.result(timeout=0), promised.exception()) == (3, 3, None)
    assert (promised.done(), promised.running(), promised.cancel()) == (True, False, False)
    with pytest.raises(InvalidStateError):
        promised.set_result(4)


def test_an_error_is_raised_where_the_answer_is_read() -> None:
    promised: Promised[int] = Promised()
    promised.set_exception(ValueError("no"))
    assert isinstance(promised.exception(), ValueError)
    with pytest.raises(ValueError, match="no"):
        promised.result()


@pytest.mark.parametrize("begun", [False, True])
def test_callbacks_are_called_and_may_read_the_answer(begun: bool) -> None:
    promised: Promised[int] = Promised()
    got: list[int] = []
    promised.add_done_callback(lambda future: got.append(future.result()))
    if begun:
        promised.set_running_or_notify_cancel()
    promised.set_result(4)
    promised.add_done_callback(lambda future: got.append(future.result() + 1))
    assert got == [4, 5]


def test_what_is_withdrawn_is_not_begun() -> None:
    promised: Promised[int] = Promised()
    assert promised.cancel()
    assert (promised.cancelled(), promised.done()) == (True, True)
    assert not promised.set_running_or_notify_cancel()
    with pytest.raises(CancelledError):
        promised.result()


def test_waiting_has_a_deadline() -> None:
    promised: Promised[int] = Promised()
    with pytest.raises(TimeoutError):
        promised.result(timeout=0.01)
    with pytest.raises(TimeoutError):
        promised.exception(timeout=0.01)


def test_others_wait_for_several_at_once() -> None:
    several = [Promised[int]() for _ in range(4)]
    for number, promised in enumerate(several):
        threading.Timer(0.01 * number, promised.set_result, [number]).start()
    done, waiting = wait(several, timeout=10)
    assert (len(done), len(waiting)) == (4, 0)
    assert sorted(future.result() for future in as_completed(several)) == [0, 1, 2, 3]


def test_waiters_and_answers_that_meet_all_see_the_answer() -> None:
    for number in range(300):
        promised: Promised[int] = Promised()
        got: list[int] = []
        threads = [
            threading.Thread(target=lambda p=promised, g=got: g.append(p.result())),
            threading.Thread(target=promised.set_result, args=[number]),
            threading.Thread(
                target=lambda p=promised, g=got: p.add_done_callback(lambda f: g.append(f.result()))
            ),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=10)
        assert got == [number, number]
