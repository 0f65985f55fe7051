"""Tables on a terminal: ids stay whole, text is cut, minor columns go first."""

import re
import sys

import pytest

from replay.cli.commands import calls, check, import_files, sessions, show
from replay.cli.event_lines import EVENT_COLUMNS, EVENT_MINOR
from replay.cli.invocation import Invocation
from replay.cli.output import Output
from replay.cli.table import NEVER_CUT, SHORTENED, fit_columns
from tests.support.command import Command

WIDTHS = {"SESSION": 36, "ENVIRONMENT": 30, "STATUS": 8, "FROM": 8, "LAST EVENT": 19}
ID = "gym-rollouts/a-task-name/0123456789ab"


def test_what_fits_is_left_as_it_is() -> None:
    assert fit_columns(WIDTHS, 200, ("FROM",)) == WIDTHS


def test_text_is_shortened_before_a_column_goes() -> None:
    assert fit_columns(WIDTHS, 100, ("FROM",)) == {**WIDTHS, "ENVIRONMENT": 21}


def test_minor_columns_go_in_order_and_a_narrow_one_stays_where_it_fits() -> None:
    fitted = fit_columns(WIDTHS, 80, ("FROM", "LAST EVENT"))
    assert list(fitted) == ["SESSION", "ENVIRONMENT", "STATUS", "LAST EVENT"]
    assert list(fit_columns(WIDTHS, 78, ("FROM", "LAST EVENT"))) == [*[*fitted][:3], "FROM"]
    assert fitted["SESSION"] == 36
    assert sum(fitted.values()) + 2 * (len(fitted) - 1) <= 80


def test_where_nothing_helps_the_session_is_folded() -> None:
    fitted = fit_columns({"SESSION": 90, "STATUS": 8}, 60, ())
    assert fitted == {"SESSION": 50, "STATUS": 8}


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize(
    ("columns", "minor"),
    [
        (sessions.COLUMNS, sessions.MINOR),
        (calls.COLUMNS, calls.MINOR),
        (check.COLUMNS, check.MINOR),
        (import_files.COLUMNS, import_files.MINOR),
        (show.LINE_COLUMNS, show.LINE_MINOR),
        (EVENT_COLUMNS, EVENT_MINOR),
    ],
)
def test_no_verbs_table_cuts_what_names_a_row(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    columns: dict[str, object],
    minor: tuple[str, ...],
    width: int,
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("NO_COLOR", "1")
    told = {"SESSION": ID, "STATUS": "released", "KIND": "tool_returned", "VERDICT": "conflicts"}
    text = {name: f"{name} and so much more that it cannot be shown whole" for name in SHORTENED}
    cells = {name: (lambda one, name=name: (told | text).get(name, "1234567")) for name in columns}
    Output(Invocation("", False, False, True)).print_records([{}], cells, minor=minor)
    captured = capsys.readouterr()
    shown = re.sub(r"\x1b\[[0-9;]*m", "", captured.out)
    for name in told.keys() & columns.keys() & NEVER_CUT:
        assert told[name] in shown, shown
    assert max(map(len, shown.splitlines())) <= width
    left_out = [name for name in columns if name not in shown.splitlines()[0]]
    assert all(name in minor for name in left_out)
    assert all(name in captured.err for name in left_out), "with -v they are named"


def test_a_terminal_of_80_columns_shows_whole_ids(
    desk: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    with desk.open() as ws:
        ws.record(
            "0198c5d2-7f1e-7a3b-9c4d-0123456789ab", environment="an-environment-of-some-length"
        )
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    for verb in (["sessions"], ["check"]):
        assert "0198c5d2-7f1e-7a3b-9c4d-0123456789ab" in desk(*verb).out
