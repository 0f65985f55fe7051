"""What the pages and the examples show works as it is written.

The Python blocks of a page run in order in one folder, each in a process of its own, as a reader
would run them. The command lines of the README run after its blocks.
"""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command import Command
from tests.support.data import data_path
from tests.support.imported import rollout_record, write_lines
from tests.support.sources import ROOT, text_of

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

_BLOCK = re.compile(
    r"(?:^<!-- (?P<mark>.*?) -->\n)?^```python\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL
)
EXAMPLES_LINES_MAX = 40
KAFKA_PYTHONS_OWN = [
    f"-Wignore:{name} is deprecated:DeprecationWarning" for name in ("read_text", "open_text")
]
"""What it warns of when it is imported, as in the settings of pytest."""

ADDED_LINES_MAX = 5


def blocks_of(page: Path) -> list[tuple[str, str]]:
    """The Python blocks of a page that run: a name and the code."""
    found = []
    for number, block in enumerate(_BLOCK.finditer(text_of(page)), 1):
        mark = block["mark"] or f"example: block {number}"
        if mark.startswith("example: "):
            found.append((mark.removeprefix("example: "), block["code"]))
    return found


def run_python(code: str, folder: Path, name: str) -> str:
    """Run code as a file in `folder`; what it printed."""
    file = folder / f"{name.removesuffix('.py').replace(' ', '_')}.py"
    file.write_text(code, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", *KAFKA_PYTHONS_OWN, str(file)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=120,
    )
    assert done.returncode == 0, f"{name}:\n{done.stderr}"
    return done.stdout


def pages_with_blocks() -> list[Path]:
    """The pages that show Python."""
    return [page for page in PAGES if blocks_of(page)]


@pytest.mark.parametrize("page", pages_with_blocks(), ids=lambda page: page.name)
def test_the_blocks_of_a_page_run_in_order(page: Path, tmp_path: Path) -> None:
    write_lines(tmp_path / "runs.rollouts.jsonl", [rollout_record()])  # what importing.md imports
    for name, code in blocks_of(page):
        run_python(code, tmp_path, name)


def test_the_readme_and_the_python_page_have_blocks() -> None:
    names = [page.name for page in pages_with_blocks()]
    assert {"README.md", "python.md"} <= set(names)


@pytest.mark.parametrize("page", pages_with_blocks(), ids=lambda page: page.name)
def test_an_example_may_be_saved_under_its_name(page: Path) -> None:
    """The next script in that folder imports it instead of a package of ours, or of Python."""
    taken = {"eventlog", "snapshots", "replay", "steplog", *sys.stdlib_module_names}
    assert not taken & {name.removesuffix(".py") for name, _ in blocks_of(page)}


def test_the_readme_says_which_names_are_in_the_way() -> None:
    readme = text_of(ROOT / "README.md")
    for name in ("eventlog.py", "snapshots.py", "replay.py", "python -P"):
        assert f"`{name}`" in readme


def test_every_public_name_is_shown_in_the_python_page() -> None:
    import steplog

    page = text_of(ROOT / "docs" / "python.md")
    shown = {"Workspace": "open_workspace", "Reducer": "reducer", "__version__": "import steplog"}
    for name in steplog.__all__:
        assert shown.get(name, name) in page, name


def test_the_readmes_record_example_adds_five_lines() -> None:
    (code,) = (code for name, code in blocks_of(ROOT / "README.md") if name == "record.py")
    assert re.findall(r"# (\d)$", code, re.MULTILINE) == ["1", "2", "3", "4", "5"]


def test_the_readmes_command_lines_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, code in blocks_of(ROOT / "README.md"):
        run_python(code, tmp_path, name)
    rollouts = data_path("traces", "nemo_gym", "blackjack.rollouts.jsonl")
    (tmp_path / "rollouts.jsonl").write_bytes(rollouts.read_bytes())
    monkeypatch.chdir(tmp_path)
    readme = text_of(ROOT / "README.md")
    lines = re.findall(r"^steplog --workspace .*$", readme, re.MULTILINE)
    assert len(lines) >= 7
    command = Command(tmp_path / "elsewhere", capsys)
    for line in lines:
        _, *arguments = shlex.split(line, comments=True)
        ran = command(*arguments)
        assert ran.code == (1 if "diff" in arguments else 0), f"{line}\n{ran.err}"
        assert ran.out, line
    assert not command.workspace.exists()


def test_the_example_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = text_of(ROOT / "examples" / "record_desk.py")
    assert len(code.splitlines()) <= EXAMPLES_LINES_MAX
    added = re.findall(r"# (\d)$", code, re.MULTILINE)
    assert added == [str(number) for number in range(1, ADDED_LINES_MAX + 1)]
    run_python(code, tmp_path, "record_desk.py")
    command = Command(tmp_path / "runs", capsys)
    row = command.row("sessions")
    assert (row["session"], row["status"], row["reward"]) == ("desk/3", "closed", 1.0)
    statuses = [call["status"] for call in command.rows("calls")]
    assert statuses == ["ok", "error", "ok", "ok"]
    assert command.row("replay", "desk/3@4", "--path", "refunded")["state"] == ["A1"]
    assert command.row("check")["verdict"] == "ok"


def test_the_producer_and_the_consumer(tmp_path: Path) -> None:
    produce_and_consume(tmp_path / "runs", tmp_path)


def produce_and_consume(place: str | Path, folder: Path) -> None:
    """Run both examples, twice each, on one workspace."""
    produced = run_example("produce_events.py", place, folder).splitlines()
    assert len(produced) == 8
    sums = [int(line.split()[1]) for line in produced]
    mean = sum(total == 21 for total in sums) / 8
    first = run_example("consume_events.py", place, folder)
    rolls = int(re.findall(r"'roll': (\d+)", first)[0])
    assert 8 * 4 <= rolls <= 8 * 21
    assert f"verifications: 8, mean reward: {mean:.2f}" in first
    nothing = "calls: {}, verifications: 0, mean reward: none\n"
    assert run_example("consume_events.py", place, folder) == nothing
    run_example("produce_events.py", place, folder)
    assert run_example("consume_events.py", place, folder) == first, "seeds are the same"


def run_example(name: str, place: str | Path, folder: Path) -> str:
    """Run an example on a workspace; what it printed."""
    code = text_of(ROOT / "examples" / name)
    assert len(code.splitlines()) <= EXAMPLES_LINES_MAX
    return run_python(f"import sys\nsys.argv[1:] = [{str(place)!r}]\n{code}", folder, name)


def test_the_marked_lines_are_all_that_recording_adds(tmp_path: Path) -> None:
    """Without them, and one level less deep, the same program runs unrecorded."""
    code = text_of(ROOT / "examples" / "record_desk.py")
    head, body = code.split("with steplog.open_workspace", 1)
    plain = re.sub(r"^import steplog.*\n", "", head, flags=re.MULTILINE)
    plain += "if True:\n    if True:\n"
    for line in body.splitlines()[2:]:
        if not line.endswith("# 5"):
            plain += re.sub(r"with session\.call.*# 4$", "if True:", line) + "\n"
    plain = plain.replace("call.result = getattr", "getattr") + "print(refunded)\n"
    assert "steplog" not in plain.split('"""', 2)[2]
    assert run_python(plain, tmp_path, "plain.py") == "['A1', 'A2']\n"
