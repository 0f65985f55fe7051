"""`steplog calls`: a call and its return as one row; filters; a branch's calls once."""

import pytest

from tests.support.command import Command, record_desk

KEYS = [
    "session",
    "call_step",
    "return_step",
    "tool",
    "status",
    "arguments",
    "result",
    "reward",
    "duration_us",
    "policy",
]


def test_a_row_has_these_keys_and_no_other(desk: Command) -> None:
    rows = desk.rows("calls", "desk/1")
    assert [list(row) for row in rows] == [KEYS] * 4
    assert rows[0] | {"duration_us": 0} == {
        "session": "desk/1",
        "call_step": 1,
        "return_step": 2,
        "tool": "add",
        "status": "ok",
        "arguments": {"by": 1},
        "result": {"n": {"$float": "1.0"}},
        "reward": None,
        "duration_us": 0,
        "policy": None,
    }
    assert rows[0]["duration_us"] >= 0
    assert rows[2]["reward"] == 0.5
    assert rows[2]["result"]["size"] == 5_000_000
    assert (rows[3]["status"], rows[3]["return_step"], rows[3]["result"]) == ("open", None, None)


@pytest.mark.parametrize(
    ("options", "steps"),
    [
        ([], [1, 3, 6, 8]),
        (["--tool", "add"], [1]),
        (["--status", "open"], [8]),
        (["--status", "error"], [3]),
        (["--tool", "add", "--status", "error"], []),
    ],
)
def test_filters(desk: Command, options: list[str], steps: list[int]) -> None:
    assert [row["call_step"] for row in desk("calls", "desk/1", "--json", *options).rows] == steps
    assert [row["call_step"] for row in desk("calls", "--json", *options).rows] == steps


def test_over_all_sessions_each_call_comes_once(desk: Command) -> None:
    with desk.open() as ws:
        record_desk(ws, "shop/1", task_id="t")
        branch = ws.fork("desk/1", 4, name="b")
        with ws.resume(branch) as session, session.call("again", {}):
            pass
        # Called by the parent, answered in the branch.
        with ws.resume(ws.fork("desk/1", 8, name="c")) as session:
            session.interrupt_open_calls()
    found = [(row["session"], row["call_step"], row["status"]) for row in desk.rows("calls")]
    own = [(1, "ok"), (3, "error"), (6, "ok"), (8, "open")]
    assert found == [
        *(("desk/1", *call) for call in own),
        *(("shop/1", *call) for call in own),
        ("b", 7, "ok"),
        ("desk/1", 8, "interrupted"),
    ]
    assert len(desk.rows("calls", "b")) == 3, "a branch's own view has its past"
    assert len(desk.rows("calls", "--task", "t")) == 4
    assert len(desk.rows("calls", "--prefix", "shop")) == 4
    assert len(desk.rows("calls", "--environment", "desk")) == 10


def test_a_session_and_a_choice_of_sessions_do_not_go_together(desk: Command) -> None:
    assert desk("calls", "desk/1", "--task", "t").code == 2


def test_a_table_for_people(desk: Command) -> None:
    headings, first, *_ = desk("calls", "desk/1").lines
    assert headings == [
        "SESSION",
        "CALL",
        "RETURN",
        "TOOL",
        "STATUS",
        "ARGUMENTS",
        "RESULT",
        "REWARD",
        "DURATION",
    ]
    assert first[:6] == ["desk/1", "1", "2", "add", "ok", '{"by": 1}']
    assert desk("calls", "--tool", "none") == (0, "", "no such call\n")


def test_an_unknown_session(desk: Command) -> None:
    assert desk("calls", "desk/2").code == 5
