"""The style of the house where a program can see it. Each message says what to do."""

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.code_faults import (
    HOSTS_AND_MACHINE_PATHS,
    UNFINISHED,
    imports_by_name,
    is_a_stub,
    prints,
    runs_stored_code,
    swallows,
)
from tests.support.sources import (
    PACKAGES,
    no_findings,
    parsed,
    python_files,
    short,
    text_of,
    tracked_files,
)

FILE_LINES_MAX = 400
TEST_FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70
CLASS_LINES_MAX = 250
TRACKED_BYTES_MAX = 1024 * 1024

LONGER_FOR_NOW: dict[str, int] = {}
"""A ratchet: files that may be this long, and no longer. It only ever shrinks."""

OURS = python_files(*PACKAGES)
SCRIPTS = python_files("benchmarks", ".ci", "docker")
TESTS = python_files("tests")

MAY_IMPORT_BY_NAME = {
    "steplog/__init__.py": "the lazy face: from its own fixed table",
    "replay/cli/main.py": "the verbs: from its own fixed table",
}
MAY_CATCH_ALL = {
    "eventlog/recording/recorded_call.py": "a tool's own exception goes on, with a note",
    "replay/snapshot_taker.py": "a user's policy: the event it is asked after is durable already",
    "eventlog/kafka/committer.py": "the one writer: each waiter is answered, whatever happened",
    "eventlog/sqlite/committer.py": "the one writer: each waiter is answered, whatever happened",
    "snapshots/checkpoints/after_commit.py": "the save is whole, whatever comes after it",
    "snapshots/checkpoints/workers.py": "whoever asks the future is told, in another thread",
    "snapshots/shards/ranks.py": "the other ranks are told, and the exception goes on",
    "snapshots/shards/trained.py": "whatever a user's load_state_dict raises goes on, named",
}
VAGUE_MODULES = {"utils", "util", "common", "core", "services", "helpers", "misc", "base"}


def test_files_fit_in_a_head() -> None:
    limits = [(OURS + SCRIPTS, FILE_LINES_MAX), (TESTS, TEST_FILE_LINES_MAX)]
    long = [
        f"{short(path)}: {lines} lines, at most {allowed}"
        for files, limit in limits
        for path in files
        for lines, allowed in [(_line_count(path), LONGER_FOR_NOW.get(short(path), limit))]
        if lines > allowed
    ]
    no_findings(long, "split them along their nouns")


def _line_count(path: Path) -> int:
    return text_of(path).count("\n")


def test_the_ratchet_is_tight() -> None:
    slack = [
        f"{name}: {LONGER_FOR_NOW[name]} allowed, {_line_count(path)} used"
        for path in OURS + SCRIPTS + TESTS
        if (name := short(path)) in LONGER_FOR_NOW and LONGER_FOR_NOW[name] > _line_count(path)
    ]
    no_findings(slack, "lower the ratchet to what is used")


def test_functions_and_classes_are_short() -> None:
    long = []
    for path in OURS + SCRIPTS + TESTS:
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                limit = FUNCTION_LINES_MAX
            elif isinstance(node, ast.ClassDef):
                limit = CLASS_LINES_MAX
            else:
                continue
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > limit:
                long.append(f"{short(path)}:{node.lineno} {node.name}: {lines} lines, max {limit}")
    no_findings(long, "split them: `if`s up in the parent, loops and pure work down")


def test_every_public_thing_says_what_it_is() -> None:
    silent = [place for path in OURS + SCRIPTS for place in _without_docstring(path)]
    no_findings(silent, "write what it does, its units and its errors")


def _without_docstring(path: Path) -> Iterator[str]:
    tree = parsed(path)
    if ast.get_docstring(tree) is None:
        yield f"{short(path)}: the module"
    yield from _silent_members(path, tree, None)


def _silent_members(
    path: Path, scope: ast.Module | ast.ClassDef, owner: str | None
) -> Iterator[str]:
    for node in scope.body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        if node.name.startswith("_") or _is_decorated(node, "overload", "setter", "override"):
            continue
        documented = ast.get_docstring(node) is not None or (
            isinstance(scope, ast.ClassDef)
            and (_inherits_docstring(scope, node.name) or _is_protocol_field(scope, node))
        )
        if not documented:
            yield f"{short(path)}:{node.lineno} {owner + '.' if owner else ''}{node.name}"
        if isinstance(node, ast.ClassDef):
            yield from _silent_members(path, node, node.name)


def _is_decorated(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, *names: str) -> bool:
    return any(
        (decorator.attr if isinstance(decorator, ast.Attribute) else getattr(decorator, "id", None))
        in names
        for decorator in node.decorator_list
    )


def _is_protocol_field(
    scope: ast.ClassDef, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
) -> bool:
    # A protocol writes a read-only field as a property; its class says what the fields are.
    names = {getattr(base, "id", None) for base in scope.bases}
    return "Protocol" in names and _is_decorated(node, "property")


def _inherits_docstring(scope: ast.ClassDef, method: str) -> bool:
    # A keeper's method is described once, in the contract it implements.
    for base in scope.bases:
        name = base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "")
        for candidate in _classes().get(name, []):
            for node in candidate.body:
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == method:
                    return ast.get_docstring(node) is not None
            if _inherits_docstring(candidate, method):
                return True
    return False


def _classes() -> dict[str, list[ast.ClassDef]]:
    found: dict[str, list[ast.ClassDef]] = {}
    for path in OURS:
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(node)
    return found


@pytest.mark.parametrize(
    ("is_fault", "excused", "fix"),
    [
        (swallows, tuple(MAY_CATCH_ALL), "catch what can happen here, by name"),
        (runs_stored_code, (), "nothing read from storage may run code"),
        (imports_by_name, tuple(MAY_IMPORT_BY_NAME), "stored data never names an import"),
        (is_a_stub, (), "nothing half-built behind a public name"),
        (prints, ("replay/cli/",), "only the command prints; raise or return the value"),
    ],
)
def test_faults_a_syntax_tree_shows(
    is_fault: Callable[[ast.AST], bool], excused: tuple[str, ...], fix: str
) -> None:
    found = [
        f"{short(path)}:{getattr(node, 'lineno', 0)}"
        for path in OURS
        if not short(path).startswith(excused)
        for node in ast.walk(parsed(path))
        if is_fault(node)
    ]
    no_findings(found, fix)


def test_modules_are_named_for_what_they_hold() -> None:
    vague = [short(path) for path in OURS if VAGUE_MODULES & {path.stem, path.parent.name}]
    no_findings(vague, "name the noun; a service is a function of the module whose work it does")


def _tracked_texts() -> Iterator[tuple[str, str]]:
    for path in tracked_files():
        data = path.read_bytes()
        if b"\0" not in data:
            yield short(path), data.decode("utf-8", "replace")


@pytest.mark.parametrize(
    ("pattern", "fix"),
    [
        (HOSTS_AND_MACHINE_PATHS, "the project names no registry host and no machine's own paths"),
        (UNFINISHED, "finish it, or file an issue and say nothing here"),
    ],
)
def test_words_that_never_land(pattern: re.Pattern[str], fix: str) -> None:
    found = [
        f"{name}:{text.count(chr(10), 0, match.start()) + 1}: {match[0]}"
        for name, text in _tracked_texts()
        for match in pattern.finditer(text)
    ]
    no_findings(found, fix)


def test_no_large_file_is_tracked() -> None:
    large = [
        f"{short(path)}: {path.stat().st_size} bytes"
        for path in tracked_files()
        if path.stat().st_size > TRACKED_BYTES_MAX
    ]
    no_findings(large, "keep test data outside the repository, or make it from a seed")
