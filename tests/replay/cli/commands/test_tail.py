"""`steplog tail`: the last events of the whole log, and those that come."""

import threading

import pytest

from tests.support.command import Command


def test_the_last_events_of_the_whole_log(desk: Command) -> None:
    with desk.open() as ws, ws.record("shop/1", environment="shop") as session:
        session.record_message("user", "hello")
    rows = desk.rows("tail", "--lines", 4)
    assert [(row["session"], row["step"]) for row in rows] == [
        ("desk/1", 11),
        ("shop/1", 0),
        ("shop/1", 1),
        ("shop/1", 2),
    ]
    assert [row["offset"] for row in rows] == [11, 12, 13, 14]
    assert rows[0] == desk.row("show", "desk/1@11")


@pytest.mark.parametrize(("options", "count"), [([], 10), (["-n", "0"], 0), (["-n", "1000"], 12)])
def test_how_many(desk: Command, options: list[str], count: int) -> None:
    assert len(desk.rows("tail", *options)) == count


def test_a_table_for_people(desk: Command) -> None:
    headings, line = desk("tail", "-n", 1).lines
    assert headings[:4] == ["SESSION", "STEP", "ATTEMPT", "KIND"]
    assert line[:4] == ["desk/1", "11", "1", "session_closed"]


def test_events_that_a_claim_superseded_are_told_too(desk: Command) -> None:
    with desk.open() as ws:
        ws.resume("desk/1", at_step=4, reopen=True).release()
    assert [row["step"] for row in desk.rows("tail", "-n", 3)] == [11, 5, 6]


def test_following_prints_what_comes(desk: Command) -> None:
    def record_later() -> None:
        with desk.open() as ws, ws.record("later", environment="shop"):
            pass

    writer = threading.Timer(0.3, record_later)
    writer.start()
    ran = desk("tail", "-n", 1, "--follow", "--for", "2s", "--json")
    writer.join()
    assert [(row["session"], row["step"]) for row in ran.rows] == [
        ("desk/1", 11),
        ("later", 0),
        ("later", 1),
    ]
    assert ran.code == 0


def test_following_an_empty_log_ends_when_told_to(steplog: Command) -> None:
    steplog.open().close()
    assert steplog("tail", "-f", "--for", "0s") == (0, "", "")


def test_for_goes_with_follow(desk: Command) -> None:
    assert desk("tail", "--for", "1s").code == 2
    assert desk("tail", "-f", "--for", "soon").code == 2
