"""`steplog fork`: a branch for the price of one event."""

from tests.support.command import Command


def test_a_branch_with_a_name(desk: Command) -> None:
    assert desk.row(
        "fork", "desk/1@4", "--name", "b", "--change", "why=what if", "--change", "k=a=b"
    ) == {
        "session": "b",
        "parent_session": "desk/1",
        "parent_step": 4,
    }
    body = desk.row("show", "b@5")["body"]
    assert body["changes"] == {"why": "what if", "k": "a=b"}
    assert desk.row("replay", "b")["state_digest"] == desk.row("replay", "desk/1@4")["state_digest"]
    assert desk.row("sessions", "--prefix", "b")["status"] == "released"


def test_a_branch_without_a_name_gets_one_of_its_own(desk: Command) -> None:
    ran = desk("fork", "desk/1@4")
    assert ran.code == 0
    assert ran.out.strip() in [row["session"] for row in desk.rows("sessions")]


def test_what_is_refused(desk: Command) -> None:
    assert desk("fork", "desk/1").code == 2
    assert desk("fork", "desk/1@4", "--change", "nothing").code == 2
    assert desk("fork", "desk/1@12").code == 5
    assert desk("fork", "desk/2@1").code == 5
    assert desk("fork", "desk/1@4", "--name", "desk/1").code == 1
    assert len(desk.rows("sessions")) == 1
