"""Threads for one piece of work: all is done or withdrawn, each error is told, none is left."""

import threading

import pytest

from snapshots.checkpoints.workers import Workers

SOON_S = 60


def names() -> list[str]:
    return [one.name for one in threading.enumerate() if one.name == "of-this-test"]


def test_all_that_is_submitted_is_done_and_no_thread_is_left() -> None:
    workers = Workers(3, "of-this-test")
    assert names() == []
    futures = [workers.submit(divmod, number, 7) for number in range(100)]
    workers.close()
    assert [future.result(0) for future in futures] == [divmod(n, 7) for n in range(100)]
    assert names() == []


def test_an_error_is_of_the_one_whose_it_is() -> None:
    workers = Workers(1, "of-this-test")
    failing, fine = workers.submit(divmod, 1, 0), workers.submit(divmod, 1, 1)
    with pytest.raises(ZeroDivisionError):
        failing.result(SOON_S)
    assert fine.result(SOON_S) == (1, 0)
    workers.close()


def test_who_submits_does_the_work_where_no_thread_can_be_begun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Python 3.12 begins none once the program has come to its end."""

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    workers = Workers(2, "of-this-test")
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        done, failed = workers.submit(threading.get_ident), workers.submit(divmod, 1, 0)
        assert done.result(0) == threading.get_ident()
        assert isinstance(failed.exception(0), ZeroDivisionError)
    assert workers.submit(threading.get_ident).result(SOON_S) != threading.get_ident()
    workers.close()
    assert names() == []


def test_what_is_not_begun_can_be_withdrawn() -> None:
    workers = Workers(1, "of-this-test")
    began, goes_on = threading.Event(), threading.Event()

    def wait() -> bool:
        began.set()
        return goes_on.wait(SOON_S)

    first, second = workers.submit(wait), workers.submit(divmod, 1, 1)
    assert began.wait(SOON_S)
    second.add_done_callback(lambda _: goes_on.set())
    workers.close(cancel=True)
    assert first.result(0)
    assert second.cancelled()
    assert names() == []
