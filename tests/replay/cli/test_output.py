"""What a verb prints: strict JSON, tables for people, and nothing that drives a terminal."""

import json
import math
import sys
from collections.abc import Iterator

import pytest

from replay.cli.invocation import Invocation
from replay.cli.output import (
    Columns,
    Output,
    Record,
    duration_text,
    number_text,
    printable,
    shortened,
    time_text,
)
from replay.views import json_number

ROWS: list[Record] = [
    {"session": "a[bold]", "step": 3, "reward": 1.0},
    {"session": "b\x1b[31m\nc\u202e", "step": None, "reward": json_number(math.nan)},
]
COLUMNS: Columns = {
    "SESSION": lambda one: str(one["session"]),
    "STEP": lambda one: str(one["step"]),
}


def output(*, as_json: bool = False, quiet: bool = False, verbose: bool = False) -> Output:
    """An output as the command would make it."""
    return Output(Invocation("", as_json, quiet, verbose))


def refuse_constant(text: str) -> object:
    """NaN and the infinities are not JSON."""
    raise AssertionError(text)


def test_json_is_strict_and_one_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert output(as_json=True).print_records(ROWS, COLUMNS) == 2
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line, parse_constant=refuse_constant) for line in lines] == [
        {"session": "a[bold]", "step": 3, "reward": 1.0},
        {"session": "b\x1b[31m\nc\u202e", "step": None, "reward": {"$float": "nan"}},
    ]


def test_json_refuses_what_json_has_not() -> None:
    with pytest.raises(ValueError, match="JSON"):
        output(as_json=True).print_json({"reward": math.inf})


def test_a_pipe_gets_tab_separated_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert output().print_records(ROWS, COLUMNS) == 2
    assert capsys.readouterr().out.splitlines() == [
        "SESSION\tSTEP",
        "a[bold]\t3",
        "b\\x1b[31m\\nc\\u202e\tNone",
    ]


def test_nothing_to_list_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert output().print_records([], COLUMNS) == 0
    assert capsys.readouterr().out == ""


def test_a_terminal_gets_a_table_without_recorded_control_characters(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    assert output().print_records(ROWS, COLUMNS) == 2
    shown = capsys.readouterr().out
    assert "a[bold]" in shown
    assert "\\x1b[31m\\nc\\u202e" in shown
    assert "\x1b[3" not in shown, "NO_COLOR is honoured, and recorded colours are text"


def test_a_long_list_appears_as_it_is_read(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    seen_at_501 = []

    def rows() -> Iterator[Record]:
        for step in range(502):
            if step == 501:
                seen_at_501.append(capsys.readouterr().out)
            yield {"session": "s", "step": step}

    assert output().print_records(rows(), COLUMNS) == 502
    assert "499" in seen_at_501[0]
    assert "501" in capsys.readouterr().out


def test_notes_go_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    for settings in ({}, {"quiet": True}, {"verbose": True}):
        printed = output(**settings)
        printed.note("a note")
        printed.detail("a detail")
    assert capsys.readouterr() == ("", "a note\na note\na detail\n")


def test_progress_is_silent_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with output().progress("importing", total=2) as advance:
        advance(1)
        advance(1)
    assert capsys.readouterr() == ("", "")


def test_progress_is_drawn_on_stderr_of_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with output().progress("importing", total=2) as advance:
        advance(2)
    captured = capsys.readouterr()
    assert "importing" in captured.err
    assert captured.out == ""


def test_fields_are_aligned(capsys: pytest.CaptureFixture[str]) -> None:
    output().print_fields({"kind": "verified", "reducer": "captured\x07"})
    assert capsys.readouterr().out == "kind     verified\nreducer  captured\\x07\n"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("größe 漢字 🙂", "größe 漢字 🙂"),
        ("a\tb\r\n", "a\\tb\\r\\n"),
        ("\udc80", "\\udc80"),
        ("\x9b31m", "\\x9b31m"),
    ],
)
def test_printable(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_texts_of_values() -> None:
    assert time_text(0) == time_text(None) == "-"
    assert time_text(1_700_000_000_999_999) == "2023-11-14 22:13:20"
    assert [duration_text(one) for one in (None, 999, 1_500, 2_500_000)] == [
        "-",
        "999 us",
        "1.5 ms",
        "2.5 s",
    ]
    assert [number_text(one) for one in (None, 1.0, 0.25, math.inf)] == ["-", "1", "0.25", "inf"]
    assert json_number(0.5) == 0.5
    assert json_number(None) is None
    assert shortened("x" * 61) == "x" * 59 + "…"
    assert shortened("x" * 60) == "x" * 60
