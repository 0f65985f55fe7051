"""`steplog import`: what is kept of a file that is cut, damaged or of no format (case D1)."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command import Command
from tests.support.imported import chat_record, rollout_record, said, write_lines

KEYS = ["session", "format", "events", "state", "warnings"]

# A character of three bytes, so that a cut can fall inside it.
GOOD = [chat_record(number, said("user", f"hello {number} 漢")) for number in range(4)]


def lines_of(records: list[dict[str, object]]) -> Iterator[bytes]:
    """Each record as a line, with its end."""
    for record in records:
        yield json.dumps(record, ensure_ascii=False).encode() + b"\n"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A chat file of four good records."""
    file = tmp_path / "trace.jsonl"
    file.write_bytes(b"".join(lines_of(GOOD)))
    return file


def test_a_row_has_these_keys_and_no_other(steplog: Command, trace: Path) -> None:
    rows = steplog.rows("import", trace)
    assert [list(row) for row in rows] == [KEYS] * 4
    assert {(row["format"], row["state"], len(row["warnings"])) for row in rows} == {
        ("chat", "none", 0)
    }
    assert [row["session"] for row in steplog.rows("sessions")] == [row["session"] for row in rows]
    counted = [row["step_count"] for row in steplog.rows("sessions")]
    assert [row["events"] for row in rows] == counted


def test_again_adds_nothing(steplog: Command, trace: Path) -> None:
    first = steplog.rows("import", trace)
    again = steplog.rows("import", trace)
    assert [row["session"] for row in again] == [row["session"] for row in first]
    assert {row["events"] for row in again} == {0}
    assert steplog.rows("tail", "-n", 1000) == steplog.rows("tail", "-n", 1000)
    assert len(steplog.rows("sessions")) == 4


def broken(kind: str) -> tuple[bytes, int]:
    """Three good lines and what is wrong, and the byte offset of the record that is not kept."""
    first, second, third, fourth = lines_of(GOOD)
    good = first + second + third
    cut_character = fourth[: fourth.index("漢".encode()) + 1]
    return {
        "inside a character": (good + cut_character, len(good)),
        "cut JSON": (good + fourth[:20], len(good)),
        "cut before the newline's brace": (good + fourth[:-2], len(good)),
        "bad middle line": (first + b"{oops}\n" + second + third, len(first)),
        "not an object": (first + second + third + b"[1]\n", len(good)),
    }[kind]


@pytest.mark.parametrize(
    "kind",
    [
        "inside a character",
        "cut JSON",
        "cut before the newline's brace",
        "bad middle line",
        "not an object",
    ],
)
def test_a_bad_record_is_told_with_its_byte_offset_and_the_others_are_kept(
    steplog: Command, tmp_path: Path, kind: str
) -> None:
    data, offset = broken(kind)
    file = tmp_path / "cut.jsonl"
    file.write_bytes(data)
    ran = steplog("import", file, "--json")
    assert ran.code == 6
    assert len(ran.rows) == 3
    assert f"byte offset {offset}" in ran.err
    assert str(file) in ran.err
    assert len(steplog.rows("sessions")) == 3
    assert file.read_bytes() == data
    assert steplog("import", file, "-q").err.count("error:") == 1, "errors remain"


def test_a_file_that_was_mended_brings_what_was_missing(
    steplog: Command, tmp_path: Path, trace: Path
) -> None:
    data, _ = broken("inside a character")
    file = tmp_path / "cut.jsonl"
    file.write_bytes(data)
    assert steplog("import", file).code == 6
    file.write_bytes(trace.read_bytes())
    assert [row["events"] > 0 for row in steplog.rows("import", file)] == [False] * 3 + [True]


@pytest.mark.parametrize("ending", [b"", b"\n\n", b"\r\n", b"   \n"], ids=repr)
def test_how_the_last_line_ends_changes_nothing(
    steplog: Command, trace: Path, ending: bytes
) -> None:
    trace.write_bytes(trace.read_bytes().rstrip(b"\n") + ending)
    assert len(steplog.rows("import", trace)) == 4


def test_an_empty_file_is_a_warning(steplog: Command, tmp_path: Path) -> None:
    file = tmp_path / "empty.jsonl"
    file.touch()
    ran = steplog("import", file)
    assert (ran.code, ran.out) == (0, "")
    assert "empty" in ran.err


def test_nothing_that_could_be_imported(steplog: Command, tmp_path: Path) -> None:
    file = tmp_path / "other.jsonl"
    file.write_text('{"a": 1}\n')
    ran = steplog("import", file)
    assert (ran.code, ran.out) == (1, "")
    assert "no record of a known format" in ran.err
    assert "hint:" in ran.err


def test_one_bad_file_among_good_ones(steplog: Command, tmp_path: Path, trace: Path) -> None:
    other = tmp_path / "other.jsonl"
    other.write_text('{"a": 1}\n')
    ran = steplog("import", other, tmp_path / "not there", trace, "--json")
    assert (ran.code, len(ran.rows)) == (6, 4)
    assert ran.err.count("error:") == 2


def test_a_name_typed_wrong_leaves_no_workspace_behind(steplog: Command, tmp_path: Path) -> None:
    ran = steplog("import", tmp_path / "typo.jsonl")
    assert ran.code == 1
    assert "typo.jsonl" in ran.err
    assert not steplog.workspace.exists()


def test_a_format_may_be_named(steplog: Command, trace: Path) -> None:
    assert len(steplog.rows("import", trace, "--format", "chat")) == 4
    ran = steplog("import", trace, "--format", "bfcl")
    assert (ran.code, ran.out) == (1, "")
    assert steplog("import", trace, "--format", "csv").code == 2


def test_inputs_may_be_named(steplog: Command, tmp_path: Path) -> None:
    inputs = {"responses_create_params": {"input": [{"role": "user", "content": "go"}]}, "id": 7}
    (tmp_path / "elsewhere").mkdir()
    file = write_lines(tmp_path / "r.rollouts.jsonl", [rollout_record()])
    others = write_lines(tmp_path / "elsewhere" / "i.jsonl", [inputs])
    row = steplog.row("import", file, "--inputs", others)
    seed = steplog.row("show", f"{row['session']}@0")
    assert seed["body"]["request"]["value"]["id"] == 7


def test_warnings_stand_in_the_row_and_on_stderr(steplog: Command, tmp_path: Path) -> None:
    open_call = {"type": "function_call", "name": "f", "arguments": "{}", "call_id": "c"}
    file = write_lines(tmp_path / "r.rollouts.jsonl", [rollout_record(open_call)])
    ran = steplog("import", file, "--json")
    assert ran.code == 0
    (warning,) = ran.row["warnings"]
    assert warning in ran.err
    assert steplog("import", file, "-q").err == ""


def test_a_table_for_people(steplog: Command, trace: Path) -> None:
    headings, line, *_ = steplog("import", trace).lines
    assert headings == ["SESSION", "FORMAT", "EVENTS", "STATE", "OUTCOME"]
    assert line[1:] == ["chat", "4", "none", "new"]


def test_how_many_are_new_is_told_at_the_end(steplog: Command, trace: Path) -> None:
    assert steplog("import", trace).err == "4 sessions, 4 new\n"
    again = steplog("import", trace)
    assert {line[4] for line in again.lines[1:]} == {"already there"}
    assert again.err == "4 sessions, 0 new\n"
    assert steplog("import", trace, "-q").err == ""


def test_one_problem_of_many_records_is_told_five_times_and_counted(
    steplog: Command, tmp_path: Path, trace: Path
) -> None:
    trace.write_bytes(b'{"a": 1}\n' * 40 + trace.read_bytes())
    ran = steplog("import", trace)
    assert (ran.code, len(ran.lines)) == (6, 5)
    errors = [line for line in ran.err.splitlines() if line.startswith("error:")]
    assert len(errors) == 6
    assert f"error: {trace}: 35 more records: " in errors[5]
    assert ran.err.endswith("4 sessions, 4 new, 40 failed\n")


def test_a_folder_is_answered_with_its_files(steplog: Command, tmp_path: Path, trace: Path) -> None:
    folder = tmp_path / "traces"
    folder.mkdir()
    ran = steplog("import", folder)
    assert (ran.code, steplog.workspace.exists()) == (1, False)
    assert f"hint: name its files: {folder}/*.jsonl" in ran.err
    ran = steplog("import", folder, trace)
    assert ran.code == 6
    assert f"{folder}/*.jsonl" in ran.err
