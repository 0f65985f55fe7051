"""The command's frame: its help, its global options, and what becomes of errors."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import PIPE

import pytest
import typer
from typer.main import get_command

from eventlog.errors import LogUnavailableError, SessionNotFoundError
from replay.cli import commands
from replay.cli.invocation import GLOBAL_FLAGS, GLOBAL_OPTIONS, Invocation
from replay.cli.main import VERBS, load_verb, run_command
from tests.support.sources import ROOT

RunVerb = Callable[..., int]


@pytest.fixture
def run_as_verb(monkeypatch: pytest.MonkeyPatch) -> RunVerb:
    """Run the command with a function in place of the verb `doctor`; the exit code."""

    def run(function: Callable[[typer.Context], None], *arguments: str) -> int:
        app = typer.Typer()

        @app.command()
        def verb(context: typer.Context) -> None:
            function(context)

        monkeypatch.setattr("replay.cli.main.load_verb", lambda name: get_command(app))
        return run_command([*arguments] if "doctor" in arguments else ["doctor", *arguments])

    return run


def raising(error: BaseException) -> Callable[[typer.Context], None]:
    """A verb that fails so."""

    def verb(context: typer.Context) -> None:
        raise error

    return verb


def test_every_verb_has_its_module_and_every_module_its_verb() -> None:
    folder = Path(commands.__file__).parent
    files = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    assert {verb.module for verb in VERBS.values()} == files


@pytest.mark.parametrize("name", VERBS)
def test_the_listed_help_is_the_verbs_own(name: str) -> None:
    own = load_verb(name).help
    assert own is not None
    assert own.strip().splitlines()[0] == VERBS[name].help


@pytest.mark.parametrize("name", VERBS)
def test_no_verb_takes_a_global_option_for_itself(name: str) -> None:
    pending = [load_verb(name)]
    while pending:
        command = pending.pop()
        pending += getattr(command, "commands", {}).values()
        used = {option for parameter in command.params for option in parameter.opts}
        assert not used & (GLOBAL_FLAGS | GLOBAL_OPTIONS)


@pytest.mark.parametrize("name", VERBS)
def test_every_option_of_every_verb_is_explained(name: str) -> None:
    pending = [load_verb(name)]
    while pending:
        command = pending.pop()
        pending += getattr(command, "commands", {}).values()
        silent = [one.name for one in command.params if not getattr(one, "help", None)]
        assert silent in ([], ["help"]), f"{command.name}: explain {silent}"


def test_help_lists_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    for name, verb in VERBS.items():
        assert f"{name} {verb.help}" in shown


@pytest.mark.parametrize("verb", [[], *([name] for name in VERBS), ["snapshot", "list"]])
def test_short_help_is_the_help(verb: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command([*verb, "--help"]) == 0
    long = capsys.readouterr().out
    assert run_command([*verb, "-h"]) == 0
    assert capsys.readouterr().out == long
    usage = long.splitlines()[0]
    assert not re.search(r"[{}<>]|\.\.\.\.|\[\[", usage), usage
    assert '","' not in long, "a list of keys without spaces breaks in the middle of a word"


def test_arguments_are_named_as_they_are_typed(capsys: pytest.CaptureFixture[str]) -> None:
    for verb, usage in (("import", "FILE..."), ("check", "[SESSION]..."), ("close", "SESSION")):
        run_command([verb, "-h"])
        shown = capsys.readouterr().out
        assert shown.startswith(f"Usage: steplog {verb} [OPTIONS] {usage}\n")


def test_help_loads_no_verb_and_nothing_heavy() -> None:
    code = "from replay.cli.main import run_command; import sys; run_command(['--help'])\n"
    code += "print('LOADED', *sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.partition("LOADED")[2].split())
    assert not {name for name in loaded if name.startswith("replay.cli.commands.")}
    heavy = {"fastavro", "numpy", "pydantic", "rich", "sqlite3", "asyncio", "zstandard"}
    assert not heavy & loaded


def test_nothing_asked_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command([]) == 2
    captured = capsys.readouterr()
    assert "Commands:" in captured.out + captured.err


def test_an_unknown_verb_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["docter"]) == 2
    captured = capsys.readouterr()
    assert "Did you mean 'doctor'?" in captured.err
    assert captured.out == ""


def test_an_unknown_option_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["doctor", "--loud"]) == 2
    assert "--loud" in capsys.readouterr().err


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["--version"]) == 0
    assert capsys.readouterr().out.startswith("steplog ")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["doctor"], Invocation("./steplog-data", False, False, False)),
        (["--json", "doctor", "-q"], Invocation("./steplog-data", True, True, False)),
        (["doctor", "--json", "-v", "-w", "a b"], Invocation("a b", True, False, True)),
        (["doctor", "--workspace=x"], Invocation("x", False, False, False)),
        (["doctor", "--quiet", "--verbose"], Invocation("./steplog-data", False, True, False)),
    ],
)
def test_global_options_may_stand_anywhere(
    arguments: list[str],
    expected: Invocation,
    run_as_verb: RunVerb,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("STEPLOG_WORKSPACE", raising=False)
    seen: list[Invocation] = []
    assert run_as_verb(lambda context: seen.append(Invocation.of(context)), *arguments) == 0
    assert seen == [expected]


def test_the_workspace_comes_from_the_environment(
    run_as_verb: RunVerb, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEPLOG_WORKSPACE", "from the environment")
    seen: list[str] = []
    assert run_as_verb(lambda context: seen.append(Invocation.of(context).workspace)) == 0
    assert seen == ["from the environment"]


def test_an_error_is_its_message_its_place_and_its_hint(
    run_as_verb: RunVerb, capsys: pytest.CaptureFixture[str]
) -> None:
    error = SessionNotFoundError("no such session", hint="list them", session_id="s", step=3)
    assert run_as_verb(raising(error)) == 5
    assert capsys.readouterr() == (
        "",
        "error: no such session [session 's', step 3]\n  hint: list them\n",
    )


def test_a_place_that_the_message_names_is_not_said_again(
    run_as_verb: RunVerb, capsys: pytest.CaptureFixture[str]
) -> None:
    error = SessionNotFoundError("no session 's' at step 31", hint="", session_id="s", step=3)
    run_as_verb(raising(error))
    assert capsys.readouterr().err == "error: no session 's' at step 31 [step 3]\n"
    error = SessionNotFoundError("no session 's' at step 3", hint="", session_id="s", step=3)
    run_as_verb(raising(error))
    assert capsys.readouterr().err == "error: no session 's' at step 3\n"


def test_an_errors_text_drives_no_terminal(
    run_as_verb: RunVerb, capsys: pytest.CaptureFixture[str]
) -> None:
    error = SessionNotFoundError("no \x1b[31m session\n", hint="\x9bA", session_id="a\rb")
    run_as_verb(raising(error))
    assert capsys.readouterr().err == (
        "error: no \\x1b[31m session\\n [session 'a\\rb']\n  hint: \\x9bA\n"
    )


def test_verbose_names_the_causes(run_as_verb: RunVerb, capsys: pytest.CaptureFixture[str]) -> None:
    error = LogUnavailableError("cannot write", hint="free some space")
    error.__cause__ = OSError(28, "No space left on device")
    assert run_as_verb(raising(error)) == 7
    assert "cause" not in capsys.readouterr().err
    assert run_as_verb(raising(error), "-v") == 7
    assert "cause: OSError: [Errno 28] No space left" in capsys.readouterr().err


def test_an_interrupt_is_130(run_as_verb: RunVerb) -> None:
    assert run_as_verb(raising(KeyboardInterrupt())) == 130


def test_a_verbs_verdict_is_the_exit_code(run_as_verb: RunVerb) -> None:
    assert run_as_verb(raising(typer.Exit(6))) == 6


def test_a_fault_of_ours_is_not_hidden(run_as_verb: RunVerb) -> None:
    with pytest.raises(ZeroDivisionError):
        run_as_verb(raising(ZeroDivisionError()))


@pytest.mark.parametrize("lines", [1, 100_000], ids=["short", "long"])
def test_a_reader_that_is_gone_is_no_traceback_and_no_success(lines: int) -> None:
    code = (
        "import typer, replay.cli.main as main\n"
        "app = typer.Typer()\n"
        "@app.command()\n"
        f"def verb(): [print('a line') for _ in range({lines})]\n"
        "main.load_verb = lambda name: main.get_command(app)\n"
        "raise SystemExit(main.run_command(['doctor']))"
    )
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, stdout=write_end, stderr=PIPE, check=False
        )
    finally:
        os.close(write_end)
    assert (done.returncode, done.stderr) == (141, b"")


def test_python_m_runs_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "replay.cli", "--version"], cwd=ROOT, stdout=PIPE, check=False
    )
    assert (done.returncode, done.stdout[:8]) == (0, b"steplog ")
