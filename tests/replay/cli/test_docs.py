"""`docs/commands.md` says what the command does: its verbs, options, JSON keys and exit codes."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from replay.cli.exit_codes import ExitCode
from replay.cli.invocation import GLOBAL_FLAGS, GLOBAL_OPTIONS
from replay.cli.main import VERBS, app, load_verb
from tests.support.command import Command
from tests.support.imported import chat_record, said, write_lines
from tests.support.sources import ROOT

PAGE = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
COMMON = SECTIONS.pop("What holds for every verb")


def table(section: str, heading: str) -> Iterator[str]:
    """The first cells of the rows of the table under this heading."""
    found = re.search(rf"^\| {heading} \| \|\n\|---\|---\|\n((?:\|.*\n)*)", section, re.MULTILINE)
    for line in (found[1] if found else "").splitlines():
        yield line.strip("|").split(" | ")[0].strip()


def keys_of(verb: str, sub_verb: str | None) -> list[str]:
    """The JSON keys of a verb, or of one of its own where each has a table."""
    own = re.search(rf"^### {verb} {sub_verb}\n(.*?)(?=^### |\Z)", SECTIONS[verb], re.M | re.S)
    return [cell.strip("`") for cell in table(own[1] if own else SECTIONS[verb], "key")]


def options_of(section: str) -> set[str]:
    """Every option that a section's table lists, in each of its spellings."""
    cells = " ".join(table(section, "option"))
    return set(re.findall(r"(?<![\w-])(--?[a-z][a-z-]*)", cells))


def options_in(command: Any) -> set[str]:
    """Every option that a command takes, its subcommands' included."""
    found = {
        option
        for parameter in command.params
        if parameter.param_type_name == "option"
        for option in (*parameter.opts, *parameter.secondary_opts)
    }
    for each in getattr(command, "commands", {}).values():
        found |= options_in(each)
    return found - {"--help"}


def test_every_verb_has_its_section_and_every_section_its_verb() -> None:
    assert list(SECTIONS) == list(VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_every_option_is_in_the_page_and_every_one_there_exists(verb: str) -> None:
    assert options_of(SECTIONS[verb]) == options_in(load_verb(verb))


@pytest.mark.parametrize("verb", VERBS)
def test_the_usage_line_names_what_exists(verb: str) -> None:
    usage = re.findall(r"^`(steplog .*?)`", SECTIONS[verb], re.MULTILINE)
    assert usage
    for line in usage:
        assert line.split()[1] == verb
        named = set(re.findall(r"(?<![\w-])(--[a-z][a-z-]*)", line))
        assert named <= options_in(load_verb(verb))


@pytest.mark.parametrize("verb", VERBS)
def test_subcommands_are_named(verb: str) -> None:
    for name in getattr(load_verb(verb), "commands", {}):
        assert f"steplog {verb} {name}" in SECTIONS[verb]


def test_the_global_options_are_those_of_the_root() -> None:
    assert options_of(COMMON) == options_in(get_command(app))
    assert GLOBAL_FLAGS | GLOBAL_OPTIONS | {"--version"} == options_of(COMMON)


def test_the_exit_codes_are_all_there() -> None:
    assert [int(cell) for cell in table(COMMON, "code")] == [code.value for code in ExitCode]


@pytest.mark.parametrize(
    ("verb", "arguments"),
    [
        ("demo", []),
        ("import", ["trace.jsonl"]),
        ("sessions", []),
        ("show", ["desk/1"]),
        ("calls", []),
        ("replay", ["desk/1"]),
        ("diff", ["desk/1@0", "desk/1@1"]),
        ("fork", ["desk/1@2"]),
        ("check", []),
        ("close", ["open"]),
        ("snapshot", ["list"]),
        ("doctor", []),
    ],
)
def test_the_keys_of_the_page_are_those_of_the_answer(
    desk: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str, arguments: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_lines(tmp_path / "trace.jsonl", [chat_record(1, said("user", "hello"))])
    with desk.open() as ws:
        ws.record("open", environment="desk")
    ran = desk(verb, *arguments, "--json")
    assert ran.code == 0, ran.err
    keys = [cell.strip("`") for cell in table(SECTIONS[verb], "key")]
    assert {tuple(row) for row in ran.rows} == {tuple(keys)}


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_a_verb_names_the_same_keys(verb: str) -> None:
    commands = getattr(load_verb(verb), "commands", {}).values() or [load_verb(verb)]
    for command in commands:
        keys = keys_of(verb, command.name)
        found = re.search(r"JSON keys: (.*?)\.", command.help or "", re.DOTALL)
        assert found is not None or verb == "tail"
        if found is not None:
            assert re.findall(r"\w+", found[1]) == keys


def test_every_default_and_limit_named_is_the_codes() -> None:
    from replay.cli.commands.close import close
    from replay.cli.commands.tail import tail
    from replay.views import SHOWN_BLOB_BYTES_MAX

    assert f"over {SHOWN_BLOB_BYTES_MAX >> 20} MiB" in SECTIONS["show"]
    assert tail.__defaults__ is not None
    assert f"how many ({tail.__defaults__[0]})" in SECTIONS["tail"]
    assert close.__defaults__ is not None
    assert f"(`{close.__defaults__[0]}`)" in SECTIONS["close"]
