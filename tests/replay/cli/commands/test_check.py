"""`steplog check`: reports, receipts, and the exit code of the worst."""

from pathlib import Path

import pytest

from tests.support.command import Command, record_desk

KEYS = [
    "session",
    "verdict",
    "events",
    "duplicates",
    "lost_claims",
    "superseded",
    "conflicts",
    "first_bad",
]


def digest_of(desk: Command, place: str) -> str:
    """The event digest at `SESSION@STEP`, as a receipt has it."""
    return str(desk.row("show", place)["event_digest"])


def flip_a_bit(workspace: Path, needle: bytes) -> None:
    """Damage the log where `needle` stands."""
    data = bytearray((workspace / "log.db").read_bytes())
    assert data.count(needle) == 1
    data[data.index(needle)] ^= 1
    (workspace / "log.db").write_bytes(data)


def test_a_row_has_these_keys_and_no_other(desk: Command) -> None:
    row = desk.row("check")
    assert list(row) == KEYS
    assert row == {
        "session": "desk/1",
        "verdict": "ok",
        "events": 12,
        "duplicates": 0,
        "lost_claims": 0,
        "superseded": 0,
        "conflicts": 0,
        "first_bad": None,
    }


def test_all_or_the_named_ones(desk: Command) -> None:
    with desk.open() as ws:
        record_desk(ws, "desk/2")
        record_desk(ws, "desk/3")
    assert [row["session"] for row in desk.rows("check")] == ["desk/1", "desk/2", "desk/3"]
    named = desk.rows("check", "desk/3", "desk/1", "desk/3")
    assert [row["session"] for row in named] == ["desk/3", "desk/1"]


def test_damage_is_found_told_and_the_exit_code(desk: Command) -> None:
    with desk.open() as ws:
        record_desk(ws, "desk/2")
        with ws.record("bad", environment="desk") as session:
            session.record_message("user", "a needle in the log")
    flip_a_bit(desk.workspace, b"a needle in the log")
    ran = desk("check", "--json")
    assert ran.code == 4
    verdicts = {row["session"]: (row["verdict"], row["first_bad"]) for row in ran.rows}
    assert verdicts == {"desk/1": ("ok", None), "desk/2": ("ok", None), "bad": ("damaged", 1)}
    assert "error: bad: " in ran.err
    assert "error: bad: " in desk("check", "-q").err, "errors remain"
    assert desk("check", "desk/2").code == 0


def test_a_blob_that_is_gone(desk: Command) -> None:
    for file in (desk.workspace / "blobs").rglob("*"):
        if file.is_file():
            file.unlink()
    ran = desk("check", "--json")
    assert (ran.code, ran.row["verdict"], ran.row["first_bad"]) == (4, "damaged", 7)


def test_a_receipt_that_holds(desk: Command) -> None:
    expect = f"desk/1@7:{digest_of(desk, 'desk/1@7')}"
    assert desk.row("check", "--expect", expect)["verdict"] == "ok"
    assert desk.row("check", "desk/1", "--expect", expect.upper().replace("DESK", "desk"))


def test_receipts_that_do_not_hold(desk: Command) -> None:
    digest = digest_of(desk, "desk/1@7")
    with desk.open() as ws:
        record_desk(ws, "desk/2")
    for expect, first_bad in [(f"desk/1@6:{digest}", 6), (f"desk/1@99:{digest}", 99)]:
        ran = desk("check", "--json", "--expect", expect)
        assert ran.code == 4
        found = {row["session"]: (row["verdict"], row["first_bad"]) for row in ran.rows}
        assert found == {"desk/1": ("damaged", first_bad), "desk/2": ("ok", None)}
        assert f"step {first_bad}" in ran.err


def test_a_receipt_of_a_lost_session_is_damage(desk: Command) -> None:
    expect = f"gone@3:{'0' * 64}"
    for named in ([], ["desk/1"]):
        ran = desk("check", "--json", *named, "--expect", expect)
        assert ran.code == 4
        assert [(row["session"], row["verdict"]) for row in ran.rows] == [
            ("desk/1", "ok"),
            ("gone", "damaged"),
        ]
        assert "error: gone: the session is missing" in ran.err


def test_a_receipt_whose_event_a_claim_superseded_is_no_damage(desk: Command) -> None:
    expect = f"desk/1@7:{digest_of(desk, 'desk/1@7')}"
    with desk.open() as ws:
        ws.resume("desk/1", at_step=4, reopen=True).close()
    ran = desk("check", "--json", "--expect", expect)
    assert (ran.code, ran.row["verdict"], ran.row["first_bad"]) == (6, "incomplete", 7)
    assert ran.row["superseded"] == 7
    assert "superseded" in ran.err
    assert desk.row("check")["verdict"] == "ok"


def test_the_worst_decides(desk: Command) -> None:
    with desk.open() as ws:
        record_desk(ws, "desk/2")
    kept = digest_of(desk, "desk/1@7")
    with desk.open() as ws:
        ws.resume("desk/1", at_step=4, reopen=True).close()
    superseded, lost = f"desk/1@7:{kept}", f"desk/2@7:{kept}"
    assert desk("check", "--expect", superseded).code == 6
    assert desk("check", "--expect", lost, "--expect", superseded).code == 4


@pytest.mark.parametrize("expect", ["desk/1@7", "desk/1:" + "0" * 64, "desk/1@7:00", "@1:x"])
def test_what_is_no_receipt_is_a_usage_error(desk: Command, expect: str) -> None:
    ran = desk("check", "--expect", expect)
    assert (ran.code, ran.out) == (2, "")
    assert "SESSION@STEP:DIGEST" in ran.err


def test_an_unknown_session(desk: Command) -> None:
    ran = desk("check", "desk/9")
    assert ran.code == 5
    assert "did you mean 'desk/1'?" in ran.err


def test_a_table_for_people(desk: Command) -> None:
    headings, line = desk("check").lines
    assert headings[:3] == ["SESSION", "VERDICT", "EVENTS"]
    assert line == ["desk/1", "ok", "12", "0", "0", "0", "0", "-"]


def test_how_many_of_each_verdict_is_told_at_the_end(desk: Command) -> None:
    assert desk("check").err == "1 session, 1 ok\n"
    assert desk("check", "-q").err == ""
    with desk.open() as ws:
        record_desk(ws, "desk/2")
        with ws.record("bad", environment="desk") as session:
            session.record_message("user", "a needle in the log")
    flip_a_bit(desk.workspace, b"a needle in the log")
    ran = desk("check", "--bad")
    assert ran.code == 4
    assert [line[0] for line in ran.lines] == ["SESSION", "bad"]
    assert ran.err.endswith("3 sessions, 2 ok, 1 damaged\n")
    assert [row["session"] for row in desk("check", "--bad", "--json").rows] == ["bad"]


def test_what_is_odd_and_not_wrong_is_no_error(desk: Command) -> None:
    with desk.open() as ws:
        ws.record_late_verification("desk/1", 0.0, verifier="late")
    ran = desk("check")
    assert ran.code == 0
    assert "error" not in ran.err


def test_only_the_bad_ones_of_a_sound_workspace_are_none(desk: Command) -> None:
    assert desk("check", "--bad") == (0, "", "1 session, 1 ok\n")


def test_a_receipt_that_does_not_hold_names_both_digests(desk: Command) -> None:
    there, wanted = digest_of(desk, "desk/1@6"), digest_of(desk, "desk/1@7")
    told = desk("check", "--expect", f"desk/1@6:{wanted}").err
    assert f"has digest {there}; expected was {wanted}" in told


def test_an_empty_workspace(steplog: Command) -> None:
    steplog.open().close()
    assert steplog("check") == (0, "", "0 sessions\n")
