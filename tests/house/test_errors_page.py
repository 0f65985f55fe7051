"""`docs/errors.md` lists every error class, with the exit code and the retry that the code has."""

import inspect
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from eventlog import errors
from eventlog.errors import SteplogError
from replay.cli.exit_codes import ExitCode

PAGE = Path(__file__).resolve().parents[2] / "docs" / "errors.md"
PAGE_TEXT = PAGE.read_text(encoding="utf-8")
CLASSES = {
    name: value
    for name, value in vars(errors).items()
    if inspect.isclass(value) and issubclass(value, SteplogError)
}


class Listed(NamedTuple):
    """One row of the page."""

    under: str
    exit_code: int
    retryable: bool
    when: str
    advice: str


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def rows_of_page() -> list[list[str]]:
    return [
        cells(line) for line in PAGE.read_text(encoding="utf-8").splitlines() if line[:1] == "|"
    ]


def listed_errors() -> dict[str, Listed]:
    found = {}
    for row in rows_of_page():
        if len(row) == 6 and row[0].startswith("`"):
            name, under, code, retry, when, advice = row
            assert retry in ("yes", "no"), name
            assert name.strip("`") not in found, f"{name} is listed twice"
            found[name.strip("`")] = Listed(
                under.strip("`"), int(code), retry == "yes", when, advice
            )
    return found


def test_every_error_is_listed_and_no_other() -> None:
    assert sorted(listed_errors()) == sorted(CLASSES)


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_the_page_says_what_the_code_does(name: str) -> None:
    listed, known = listed_errors()[name], CLASSES[name]
    assert listed.under == known.__base__.__name__
    assert listed.exit_code == known.exit_code
    assert listed.retryable == known.retryable
    assert listed.when
    assert listed.advice or "the base of" in listed.when


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_what_an_error_carries_is_named(name: str) -> None:
    """Arguments beyond the common ones are attributes that a handler may read."""
    common = {"message", "hint", "session_id", "step"}
    parameters = inspect.signature(CLASSES[name]).parameters
    for each in parameters.keys() - common:
        assert f"`{each}`" in listed_errors()[name].when


def test_what_is_not_raised_yet_is_said_to_be_so() -> None:
    """Every other error is raised by some module; the page names those that none raises."""
    root = PAGE.parents[1]
    modules = [
        path for top in ("eventlog", "snapshots", "replay") for path in (root / top).rglob("*.py")
    ]
    code = "\n".join(
        path.read_text(encoding="utf-8") for path in modules if path.name != "errors.py"
    )
    silent = {
        name
        for name, known in CLASSES.items()
        if not known.__subclasses__() and not re.search(rf"\b{name}\(", code)
    }
    sentence = re.search(
        r"^- ([^.]*)stand in the tree.*?nothing raises them yet", PAGE_TEXT, re.S | re.M
    )
    said = set(re.findall(r"`(\w+)`", sentence[1])) if sentence else set()
    assert silent == said


def test_the_exit_codes_are_those_of_the_command() -> None:
    listed = {int(row[0]) for row in rows_of_page() if len(row) == 2 and row[0].isdecimal()}
    assert listed == {code.value for code in ExitCode}
    assert {known.exit_code for known in CLASSES.values()} <= listed


def test_the_tree_at_the_head_of_the_module_is_the_tree() -> None:
    drawn = re.findall(r"^(    [ |`-]*)(\w+Error)( \(retryable\))?$", errors.__doc__ or "", re.M)
    assert sorted(name for _indent, name, _retry in drawn) == sorted(CLASSES)
    above: list[str] = []
    for indent, name, retry in drawn:
        depth = len(indent) // 4 - 1
        above[depth:] = [name]
        known = CLASSES[name]
        assert known.__base__.__name__ == (above[depth - 1] if depth else "Exception")
        assert known.retryable == bool(retry)
