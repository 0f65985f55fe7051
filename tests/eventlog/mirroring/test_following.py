"""Following a log: through what passes by itself, to the end once, and no further than told."""

import threading
from typing import Any

import pytest

from eventlog.cut import Cut
from eventlog.errors import LogUnavailableError, TopicChangedError
from eventlog.kafka.unreached import BrokersUnreached
from eventlog.mirroring import following
from eventlog.mirroring.following import follow_mirror

AWAY = LogUnavailableError("away", hint="wait")
CHANGED = TopicChangedError("changed", hint="look")


class Scripted:
    """Stands in for a mirror: what each refresh brings, or raises after bringing it."""

    def __init__(self, *rounds: int | Exception | tuple[int, Exception]) -> None:
        self.rounds = [(each, None) if isinstance(each, int) else each for each in rounds]
        self.records_read = 5
        self.has_reached_brokers = True
        self.stop = threading.Event()

    def refresh(self, *, timeout_s: float) -> Cut:
        now = self.rounds.pop(0)
        if not self.rounds:
            self.stop.set()
        came, error = now if isinstance(now, tuple) else (0, now)
        self.records_read += came
        if error is not None:
            raise error
        return self.cut()

    def cut(self) -> Cut:
        return Cut({0: self.records_read})


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """The script, not the clock, says when a test ends."""
    monkeypatch.setattr(following, "POLL_S", 0.0)


def follow(mirror: Any, *, once: bool) -> tuple[Cut, list[tuple[int, bool]]]:
    """The cut at the end, and what was told: how many came, whether something is in the way."""
    told: list[tuple[int, bool]] = []

    def report(came: int, trouble: object) -> None:
        told.append((came, trouble is not None))

    return follow_mirror(mirror, once=once, stop=mirror.stop, report=report), told


def test_once_ends_at_the_end() -> None:
    mirror = Scripted(7, 1, 1)
    assert follow(mirror, once=True) == (Cut({0: 12}), [(7, False)])
    assert len(mirror.rounds) == 2


def test_once_goes_on_while_something_comes() -> None:
    mirror = Scripted((7, AWAY), (8, AWAY), AWAY, 1, 1)
    assert follow(mirror, once=True)[1] == [(7, False), (8, False), (0, True), (1, False)]


def test_once_gives_up_when_nothing_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "PATIENCE_S", 0.0)
    with pytest.raises(LogUnavailableError):
        follow(Scripted((3, AWAY), AWAY, 1), once=True)


def test_once_says_how_long_it_waited_in_all_and_not_in_its_last_slice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(following, "FIRST_ANSWER_S", 0.2)
    monkeypatch.setattr(following, "POLL_S", 0.15)
    fault = BrokersUnreached("topic 't' at h:1", "111 ECONNREFUSED", 0.01)
    away = LogUnavailableError(str(fault), hint="wait")
    away.__cause__ = fault
    mirror = Scripted(away, away, away, away, 1)
    mirror.has_reached_brokers = False  # So it is not waited for as long as at an outage.
    with pytest.raises(LogUnavailableError, match=r"refused \(waited ([1-9]|0\.[2-9])"):
        follow(mirror, once=True)


def test_a_service_goes_on_without_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "PATIENCE_S", 0.0)
    cut, told = follow(Scripted(2, AWAY, AWAY, AWAY, 0, 4), once=False)
    assert cut == Cut({0: 11})
    assert told == [(2, False), (0, True), (0, True), (0, True), (0, False), (4, False)]


@pytest.mark.parametrize("once", [True, False])
def test_what_does_not_pass_ends_it(once: bool) -> None:
    with pytest.raises(TopicChangedError):
        follow(Scripted((3, AWAY), CHANGED, 1), once=once)


def test_a_wish_to_stop_is_heard_before_the_end_is_reached() -> None:
    mirror = Scripted((3, AWAY))
    assert follow(mirror, once=True) == (Cut({0: 8}), [(3, False)])
