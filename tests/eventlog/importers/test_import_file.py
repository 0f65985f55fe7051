"""Whole files: cut and damaged ones (case D1), importing again, ids, formats found by content."""

import json
import os
from pathlib import Path

import pytest

from eventlog.errors import ConfigError, ImportFormatError
from eventlog.event import SessionClosed
from eventlog.importers import import_file as module
from eventlog.importers.record_file import read_records
from eventlog.merkle_root import MerkleRoot
from tests.support.imported import (
    Imported,
    bodies,
    called,
    chat_record,
    returned,
    rollout_record,
    said,
    write_lines,
)

# The text ends in a character of three bytes, so that a cut can fall inside it.
GOOD = [
    json.dumps(chat_record(task, said("user", "pay €")), ensure_ascii=False).encode()
    for task in range(4)
]
WHOLE = b"".join(line + b"\n" for line in GOOD[:3])


@pytest.fixture
def here() -> Imported:
    return Imported()


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def tasks(here: Imported) -> list[str]:
    return [info.task_id for info in here.log.list_sessions()]


def test_d1_a_last_line_cut_at_any_byte_is_kept_apart_and_told_with_its_offset(
    tmp_path: Path,
) -> None:
    last = GOOD[3]
    inside_a_character = last.index("€".encode()) + 1
    for cut in range(1, len(last)):
        here = Imported()
        path = write(tmp_path / "cut.jsonl", WHOLE + last[:cut])
        *whole, stump = here.take(path)
        assert [outcome.events > 0 for outcome in whole] == [True, True, True]
        assert tasks(here) == ["0", "1", "2"]
        assert (stump.session_id, stump.stump, stump.failed) == (None, True, True)
        assert (stump.line, stump.byte_offset, stump.byte_count) == (4, len(WHOLE), cut)
        assert f"byte offset {len(WHOLE)}" in str(stump.problem)
        assert ("not UTF-8" in str(stump.problem)) == (
            cut in (inside_a_character, inside_a_character + 1)
        )


def test_d1_when_the_cut_line_is_written_whole_the_next_import_brings_just_that(
    here: Imported, tmp_path: Path
) -> None:
    path = write(tmp_path / "spool.jsonl", WHOLE + GOOD[3][:20])
    assert here.take(path)[-1].stump
    with path.open("r+b") as file:
        file.seek(len(WHOLE))
        file.write(GOOD[3] + b"\n" + json.dumps(chat_record("next", said("user", "x"))).encode())
    assert [outcome.events for outcome in here.take(path)] == [0, 0, 0, 4, 4]
    assert tasks(here) == ["0", "1", "2", "3", "next"]


def test_d1_a_valid_last_line_that_lacks_only_its_newline_is_kept(
    here: Imported, tmp_path: Path
) -> None:
    outcomes = here.take(write(tmp_path / "a.jsonl", WHOLE + GOOD[3]))
    assert not any(outcome.failed for outcome in outcomes)
    assert tasks(here) == ["0", "1", "2", "3"]
    with_newline = Imported()
    with_newline.take(write(tmp_path / "b.jsonl", WHOLE + GOOD[3] + b"\n"))
    assert with_newline.digests() == here.digests()


BAD_LINES = {
    "cut JSON": GOOD[1][:30],
    "a stump with the next record glued to it": GOOD[1][:30] + GOOD[2],
    "cut inside a character": GOOD[1][: GOOD[1].index("€".encode()) + 1],
    "not UTF-8": b'{"traj": "\xff"}',
    "UTF-16": '{"traj": []}'.encode("utf-16"),
    "only zeros, as a crash may leave them": bytes(100),
    "two records on one line": GOOD[1] + GOOD[2],
    "no object": b"17",
    "another kind of object": b'{"a": 1}',
    "a message without a role": json.dumps(chat_record(1, {"content": "x"})).encode(),
    "nested too deep": b'{"task_id": 1, "traj": ' + b"[" * 5000 + b"]" * 5000 + b"}",
    "nested without end": b'{"traj":' * 50_000,
    "a number too long to read": b'{"traj": [], "n": ' + b"1" * 10_000 + b"}",
}


@pytest.mark.parametrize("name", BAD_LINES)
def test_d1_a_bad_line_in_the_middle_costs_only_itself(
    here: Imported, tmp_path: Path, name: str
) -> None:
    bad = BAD_LINES[name].replace(b"\n", b" ")
    path = write(tmp_path / "a.jsonl", b"\n".join([GOOD[0], bad, b"", GOOD[3], b""]))
    first, failed, last = here.take(path)
    assert (first.events, failed.events, last.events) == (4, 0, 4)
    assert (failed.line, failed.byte_offset) == (2, len(GOOD[0]) + 1)
    assert failed.failed
    assert not failed.stump
    assert tasks(here) == ["0", "3"]


@pytest.mark.parametrize(
    "data", [b"", b"\n", b"\r\n \n", b"\xef\xbb\xbf"], ids=["empty", "newline", "blank", "mark"]
)
@pytest.mark.parametrize("name", ["a.jsonl", "a.rollouts.jsonl", "a.traj"])
@pytest.mark.parametrize("format_name", ["auto", "chat", "swe-agent"])
def test_d1_an_empty_file_is_a_warning_and_no_fault(
    here: Imported, tmp_path: Path, data: bytes, name: str, format_name: str
) -> None:
    (outcome,) = here.take(write(tmp_path / name, data), format=format_name)
    assert (outcome.session_id, outcome.events, outcome.failed) == (None, 0, False)
    assert "empty" in outcome.warnings[0]


def test_d1_blank_last_lines_a_byte_order_mark_and_crlf_change_nothing(tmp_path: Path) -> None:
    plain = Imported()
    plain.take(write(tmp_path / "a.jsonl", WHOLE))
    for data in (
        WHOLE + b"\n\n",
        WHOLE + b"  \r\n",
        b"\xef\xbb\xbf" + WHOLE,
        WHOLE.replace(b"\n", b"\r\n"),
    ):
        other = Imported()
        assert not any(each.failed for each in other.take(write(tmp_path / "a.jsonl", data)))
        assert other.digests() == plain.digests()


def test_d1_a_file_that_is_only_a_stump(here: Imported, tmp_path: Path) -> None:
    with pytest.raises(ImportFormatError, match="line 1, byte offset 0"):
        here.take(write(tmp_path / "a.jsonl", GOOD[0][:30]))
    # The name tells the format where no record does.
    for name in ("a.rollouts.jsonl", "a.traj"):
        (stump,) = here.take(write(tmp_path / name, GOOD[0][:30]))
        assert (stump.stump, stump.byte_offset, stump.byte_count) == (True, 0, 30)
    assert tasks(here) == []


def test_a_line_over_the_limit_costs_only_itself(
    here: Imported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        module, "read_records", lambda file: read_records(file, record_bytes_max=200)
    )
    long = json.dumps(chat_record("long", said("user", "x" * 500))).encode()
    outcomes = here.take(write(tmp_path / "a.jsonl", GOOD[0] + b"\n" + long + b"\n" + GOOD[1]))
    assert [each.failed for each in outcomes] == [False, True, False]
    assert (outcomes[1].byte_offset, outcomes[1].byte_count) == (len(GOOD[0]) + 1, len(long) + 1)


def test_more_records_than_the_limit_stop_with_the_line_named(
    here: Imported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RECORDS_MAX", 2)
    with pytest.raises(ImportFormatError, match="line 3"):
        here.take(write(tmp_path / "a.jsonl", WHOLE))
    assert tasks(here) == ["0", "1"]


def test_importing_again_adds_nothing_and_tells_the_same(here: Imported, tmp_path: Path) -> None:
    path = write_lines(
        tmp_path / "a.jsonl",
        [chat_record(0, called("c", "look")), chat_record(1, returned("c", "late"))],
    )
    first = here.take(path)
    kept = here.digests()
    again = here.take(path)
    assert [each.events for each in first] == [4, 4]
    assert [each.events for each in again] == [0, 0]
    assert [each._replace(events=0) for each in first] == again
    assert here.digests() == kept


def test_the_same_file_elsewhere_gives_the_same_digests(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    one, two = Imported(), Imported()
    one.take(write(tmp_path / "a.jsonl", WHOLE))
    two.take(write(tmp_path / "other" / "b.txt", WHOLE))
    assert one.digests() == two.digests()


def test_identical_records_of_a_file_are_sessions_of_their_own(
    here: Imported, tmp_path: Path
) -> None:
    line = GOOD[0].decode()
    path = write_lines(tmp_path / "a.jsonl", [line, GOOD[1].decode(), line, line, line + " "])
    ids = [str(outcome.session_id) for outcome in here.take(path)]
    assert ids[2:4] == [ids[0] + "~2", ids[0] + "~3"]
    assert len(set(ids)) == 5, "another space makes another record"
    assert [each.events for each in here.take(path)] == [0] * 5
    # Fewer or more of them in another file are the same sessions as far as they go.
    assert [each.events for each in here.take(write_lines(tmp_path / "b.jsonl", [line] * 4))] == [
        0,
        0,
        0,
        4,
    ]


@pytest.mark.parametrize(
    ("task", "part"),
    [
        ("a/b@3 ~2 é", "a/b@3 ~2 é"),
        (0, "0"),
        (-7, "-7"),
        ("", "-"),
        (None, "-"),
        (1.5, "-"),
        (True, "-"),
        (["x"], "-"),
        ("a\nb", "task-8dba7f25a8cb4e6a"),
        ("a\x85b", None),
        ("x" * 160, "x" * 160),
        ("x" * 161, None),
        ("é" * 81, None),
    ],
)
def test_session_ids_hold_the_task_where_it_fits(
    here: Imported, tmp_path: Path, task: object, part: str | None
) -> None:
    record = {"task_id": task, "reward": 0, "traj": []}
    outcome = here.take_one(write_lines(tmp_path / "a.jsonl", [record]))
    assert outcome.session_id is not None
    name, found, digest = (
        outcome.session_id.split("/", 1)[0],
        *outcome.session_id.split("/", 1)[1].rsplit("/", 1),
    )
    assert name == "chat"
    assert len(digest) == 12
    if part is None or part.startswith("task-"):
        assert found.startswith("task-")
        assert len(found) == 21
        assert "task id" in outcome.warnings[0]
        assert bodies(here.events(outcome.session_id), "session_seeded")[0].task_id == task
    else:
        assert found == part
        assert outcome.warnings == ()
    assert len(outcome.session_id.encode()) <= 255


@pytest.mark.parametrize(
    ("task", "kept", "warning"),
    [
        ("x" * 40_000, "x" * 40_000, "does not fit a session id"),
        ("x" * 200_000, "x" * 49_152, "has 200000 bytes; the seed has the first 49152"),
        ("\u00e9" * 100_000, "\u00e9" * 24_576, "has 200000 bytes"),
        ("a\ud800b", "a\\ud800b", "lone surrogates in task_id are escaped"),
    ],
    ids=["long", "over_an_events_text", "two_byte_letters", "lone_surrogate"],
)
def test_a_task_id_that_no_seed_can_hold_refuses_no_session(
    here: Imported, tmp_path: Path, task: str, kept: str, warning: str
) -> None:
    record = {"task_id": task, "reward": 0, "traj": []}
    outcome = here.take_one(write_lines(tmp_path / "a.jsonl", [record]))
    assert outcome.session_id is not None
    assert bodies(here.events(outcome.session_id), "session_seeded")[0].task_id == kept
    assert any(warning in each for each in outcome.warnings)


def test_a_session_of_that_id_from_another_record_is_never_taken_for_it(
    here: Imported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "session_id_of", lambda *_: "the same")
    first, second = here.take(write(tmp_path / "a.jsonl", b"\n".join(GOOD[:2])))
    assert first.events == 4
    assert "comes from another record" in str(second.problem)


def test_every_session_is_one_whole_batch_nobody_owns(here: Imported, tmp_path: Path) -> None:
    outcome = here.take_one(write_lines(tmp_path / "a.jsonl", [chat_record(3, called("c", "t"))]))
    info = here.log.session_info(str(outcome.session_id))
    assert (info.status, info.writer, info.attempt, info.task_id) == ("closed", None, 1, "3")
    assert (info.reward, info.reward_from) == (1.0, "verified")
    records = list(here.log.read_session(str(outcome.session_id)))
    events = here.events(outcome.session_id)
    assert [event.step for event in events] == list(range(outcome.events))
    assert {event.time for event in events} == {0}
    closed = events[-1].body
    assert isinstance(closed, SessionClosed)
    assert closed.reason == "imported"
    assert closed.event_count == len(events) - 1
    assert closed.root == MerkleRoot(record.data for record in records[:-1]).root()
    seeded = bodies(events, "session_seeded")[0]
    assert (seeded.fingerprint, seeded.state_coverage, seeded.reducer) == (
        "import",
        "none",
        "transcript",
    )


def test_large_contents_go_to_blobs_and_come_back(here: Imported, tmp_path: Path) -> None:
    text = "0123456789abcdef" * 40_000
    path = write_lines(
        tmp_path / "a.jsonl", [chat_record(0, called("c", "t", text), returned("c", text))]
    )
    events = here.events(here.take_one(path).session_id)
    assert here.value(bodies(events, "tool_called")[0].arguments) == text
    assert here.value(bodies(events, "tool_returned")[0].result) == text
    assert len(list(here.blobs.list_blobs())) == 1


def test_what_no_event_can_hold_is_a_bad_record_and_stops_no_other(
    here: Imported, tmp_path: Path
) -> None:
    long_name = chat_record("long", called("c", "x" * 100_000))
    surrogate_role = chat_record("lone", said("us\ud800er", "x"))
    path = write_lines(tmp_path / "a.jsonl", [long_name, surrogate_role, chat_record("fine")])
    long, lone, fine = here.take(path)
    assert "tool_called event has 100141 bytes of strings" in str(long.problem)
    assert "role" in str(lone.problem)
    assert fine.events > 0
    assert tasks(here) == ["fine"]


FORMAT_RECORDS = {
    "gym-rollouts": rollout_record(),
    "chat": chat_record(1),
    "bfcl": {"id": "x", "user_turns": [["hello"]], "steps": []},
    "swe-agent": {"history": [said("user", "x")]},
}


@pytest.mark.parametrize("name", FORMAT_RECORDS)
@pytest.mark.parametrize("ending", [".jsonl", ".rollouts.jsonl", ".traj", ".txt", ""])
def test_the_format_is_found_by_what_the_file_holds(
    here: Imported, tmp_path: Path, name: str, ending: str
) -> None:
    path = write_lines(tmp_path / f"file{ending}", [FORMAT_RECORDS[name]])
    assert here.take_one(path).format == name
    other = Imported()
    assert other.take_one(path, format=name).session_id is not None
    assert other.digests() == here.digests()


@pytest.mark.parametrize("name", FORMAT_RECORDS)
def test_bad_lines_before_the_first_good_one_do_not_hide_the_format(
    here: Imported, tmp_path: Path, name: str
) -> None:
    if name == "swe-agent":  # a document, not lines
        data = json.dumps(FORMAT_RECORDS[name], indent=1).encode()
        assert here.take_one(write(tmp_path / "a.json", data)).format == name
        return
    path = write_lines(tmp_path / "a.jsonl", ["{", '{"x":1}', FORMAT_RECORDS[name]])
    outcomes = here.take(path)
    assert [each.failed for each in outcomes] == [True, True, False]
    assert {each.format for each in outcomes} == {name}


def test_files_that_cannot_be_imported_say_why(here: Imported, tmp_path: Path) -> None:
    with pytest.raises(ImportFormatError, match="cannot be read: No such file"):
        here.take(tmp_path / "none.jsonl")
    with pytest.raises(ImportFormatError, match="cannot be read: Is a directory"):
        here.take(tmp_path)
    with pytest.raises(ImportFormatError, match="no record of a known format"):
        here.take(write(tmp_path / "a.jsonl", b'{"a":1}\n[]\n'))
    with pytest.raises(ConfigError, match="no importer for format 'tau'"):
        here.take(tmp_path / "none.jsonl", format="tau")
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    writer = os.open(tmp_path / "pipe", os.O_WRONLY)
    try:
        with pytest.raises(ImportFormatError, match="no file on a disk"):
            here.take(tmp_path / "pipe")
    finally:
        os.close(reader)
        os.close(writer)
