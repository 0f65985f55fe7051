"""`steplog snapshot list|take`."""

from tests.support.command import Command

KEYS = ["session", "step", "file", "bytes"]


def test_taking_and_listing(desk: Command) -> None:
    at_end = desk.rows("snapshot", "list")
    assert [(list(row), row["session"], row["step"]) for row in at_end] == [(KEYS, "desk/1", 11)]
    taken = desk.row("snapshot", "take", "desk/1@4")
    assert (list(taken), taken["step"]) == (KEYS, 4)
    assert desk.rows("snapshot", "list", "desk/1") == [taken, *at_end]
    assert desk.row("snapshot", "take", "desk/1@4") == taken, "the same state is kept once"
    (file,) = desk.workspace.rglob(taken["file"])
    assert file.stat().st_size == taken["bytes"]


def test_the_last_step_is_the_default(desk: Command) -> None:
    assert desk.row("snapshot", "take", "desk/1")["step"] == 11


def test_a_transcript_can_be_kept_too(steplog: Command) -> None:
    with steplog.open() as ws, ws.record("s", environment="chat") as session:
        session.record_message("user", "hello")
    steplog.row("snapshot", "take", "s@1")
    assert steplog.row("replay", "s@2")["from_snapshot"] == 1


def test_tables_for_people(desk: Command) -> None:
    assert desk("snapshot", "list").lines[0] == ["SESSION", "STEP", "BYTES", "FILE"]
    assert desk("snapshot", "take", "desk/1@0").lines[1][:2] == ["desk/1", "0"]


def test_none(steplog: Command) -> None:
    steplog.open().close()
    assert steplog("snapshot", "list") == (0, "", "no snapshots\n")


def test_what_stands_in_the_way_is_told(desk: Command) -> None:
    (folder,) = {file.parent for file in desk.workspace.rglob("*.snap")}
    (folder / "stray").write_text("")
    ran = desk("snapshot", "list", "--json")
    assert (ran.code, len(ran.rows)) == (6, 1)
    assert "stray" in ran.err


def test_what_is_not_there(desk: Command) -> None:
    assert desk("snapshot", "list", "desk/2").code == 5
    assert desk("snapshot", "take", "desk/2").code == 5
    assert desk("snapshot", "take", "desk/1@12").code == 5
    assert desk("snapshot", "forget").code == 2
