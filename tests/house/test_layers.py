"""The layer rule, read from the import graph: arrows only point down, and there are no circles.

Every import counts, wherever it stands: one inside a function hides a circle, it does not undo it.
"""

import ast
import fnmatch
import graphlib
import re
import sys
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.support.sources import PACKAGES, modules, no_findings, parsed, short

THIRD_PARTY = {
    "fastavro": ["eventlog/schema*.py", "eventlog/codec*.py", "eventlog/event_wire*.py"],
    "ormsgpack": ["eventlog/values/canonical_accelerated.py"],
    "zstandard": ["snapshots/compression.py"],
    "pydantic": ["eventlog/config.py", "eventlog/values/*.py"],
    "typer": ["replay/cli/*.py"],
    "rich": ["replay/cli/*.py"],
    "numpy": ["eventlog/values/*.py", "snapshots/random_state.py", "snapshots/tensor_codec.py"],
    "torch": [
        "eventlog/values/array_values.py",
        "snapshots/random_state.py",
        "snapshots/shard*.py",
    ],
    "kafka": ["eventlog/kafka/kafka_python*.py"],
    "confluent_kafka": ["eventlog/kafka/confluent*.py"],
}
"""Where each third-party package may enter (`*` also crosses folders)."""

NEVER_AT_MODULE_LEVEL = {"numpy", "torch", "pandas", "starlette", "pydantic"} | {
    "confluent_kafka",
    "kafka",
}
"""Loaded when first needed: a process that does not need them never pays for them."""

MAY_LOAD_PYDANTIC = {"eventlog/config.py"}

MAY_LOAD_TORCH = "snapshots/shard*.py"
"""Subclasses of torch's: whoever imports these modules asked for torch. No module of ours does."""

PURE = [
    "eventlog/actors.py",
    "eventlog/avro/schema_form.py",
    "eventlog/call_view.py",
    "eventlog/content.py",
    "eventlog/cut.py",
    "eventlog/event.py",
    "eventlog/importers/json_spans.py",
    "eventlog/importers/session_draft.py",
    "eventlog/kafka/owned_lines.py",
    "eventlog/kafka/rereading.py",
    "eventlog/kafka/sent_events.py",
    "eventlog/kafka/uncertain.py",
    "eventlog/keeping/append_rule.py",
    "eventlog/keeping/recent_ids.py",
    "eventlog/line_state.py",
    "eventlog/merkle_root.py",
    "eventlog/patches/sequence_alignment.py",
    "eventlog/patches/state_diff.py",
    "eventlog/patches/state_narrowing.py",
    "eventlog/patches/text_cuts.py",
    "eventlog/policy_order.py",
    "eventlog/recording/call_book.py",
    "eventlog/recording/recorder_end.py",
    "eventlog/schema_gate.py",
    "eventlog/session_line.py",
    "eventlog/session_summary.py",
    "eventlog/standing_line.py",
    "eventlog/state_patch.py",
    "eventlog/stored_fields.py",
    "eventlog/training_facts.py",
    "eventlog/values/canonical_reference.py",
    "eventlog/values/encoding_guards.py",
    "eventlog/whole_number.py",
    "snapshots/checkpoints/chunk_layout.py",
    "snapshots/checkpoints/generations.py",
    "snapshots/checkpoints/saved_again.py",
    "snapshots/checkpoints/tracks.py",
    "snapshots/consumed_samples.py",
    "snapshots/policies/history.py",
    "snapshots/save_schedule.py",
    "snapshots/snapshot.py",
    "snapshots/snapshot_policy.py",
    "replay/checkpoint_views.py",
    "replay/cli/value_text.py",
    "replay/difference.py",
    "replay/line_alignment.py",
    "replay/timeline.py",
    "replay/views.py",
]
"""The core: time, chance and files enter by a parameter. Whoever says "Pure." is in it."""

IMPURE = {"io", "logging", "os", "pathlib", "random", "secrets", "socket", "sqlite3"} | {
    "subprocess",
    "tempfile",
    "threading",
    "time",
}


class Import(NamedTuple):
    """One import: who, what, the name taken from it if any, the line, and where it stands."""

    importer: str
    imported: str
    taken: str | None
    line: int
    at_module_level: bool

    @property
    def place(self) -> str:
        """File and line, for messages."""
        return f"{short(modules()[self.importer])}:{self.line}"


def imports_of(module: str) -> Iterator[Import]:
    """All imports of one of our modules, at any depth."""
    pending: list[tuple[ast.AST, bool]] = [(parsed(modules()[module]), True)]
    while pending:
        node, outside = pending.pop()
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(module, alias.name, None, node.lineno, outside)
        elif isinstance(node, ast.ImportFrom):
            source = _absolute(module, node)
            for alias in node.names:
                inner = f"{source}.{alias.name}"
                found = (inner, None) if inner in modules() else (source, alias.name)
                yield Import(module, *found, node.lineno, outside)
        inside = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        pending += [(child, outside and not inside) for child in ast.iter_child_nodes(node)]


def _absolute(module: str, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    is_package = modules()[module].name == "__init__.py"
    base = module.split(".")[: None if is_package and node.level == 1 else is_package - node.level]
    return ".".join([*base, *([node.module] if node.module else [])])


def all_imports() -> list[Import]:
    """Every import in our packages."""
    return [one for module in modules() for one in imports_of(module)]


def _top(module: str) -> str:
    return module.partition(".")[0]


def _is_ours(one: Import) -> bool:
    return _top(one.imported) in PACKAGES


def test_arrows_between_packages_point_down() -> None:
    floor = {package: level for level, package in enumerate(PACKAGES)}
    upward = [
        f"{one.place} imports {one.imported}"
        for one in all_imports()
        if _is_ours(one) and floor[_top(one.imported)] > floor[_top(one.importer)]
    ]
    no_findings(upward, "upward imports; move the code down, or pass the value in")


def test_no_module_is_in_a_circle() -> None:
    graph: dict[str, set[str]] = {module: set() for module in modules()}
    for one in all_imports():
        if _is_ours(one) and one.imported != one.importer:
            graph[one.importer].add(one.imported)
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        pytest.fail("a circle of imports: " + " -> ".join(reversed(error.args[1])))


def test_no_room_is_in_a_circle() -> None:
    """A room is a folder in a package; what stands beside the rooms is in none."""
    graph: dict[str, set[str]] = {}
    for one in all_imports():
        rooms = [name.rpartition(".")[0] for name in (one.importer, one.imported)]
        if all("." in room and _top(room) in PACKAGES for room in rooms) and rooms[0] != rooms[1]:
            graph.setdefault(rooms[0], set()).add(rooms[1])
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        pytest.fail("a circle of rooms: " + " -> ".join(reversed(error.args[1])))


def test_names_come_from_the_module_that_defines_them() -> None:
    through_a_face = [
        f"{one.place} takes {one.taken} from the package {one.imported}"
        for one in all_imports()
        if one.taken is not None and _is_ours(one) and _is_package(one.imported)
    ]
    no_findings(through_a_face, "import from the defining module")


def test_imported_modules_of_ours_exist() -> None:
    missing = [
        f"{one.place} imports {one.imported}"
        for one in all_imports()
        if _is_ours(one) and one.imported not in modules()
    ]
    no_findings(missing, "no such module")


def _is_package(module: str) -> bool:
    return module in modules() and modules()[module].name == "__init__.py"


def test_no_import_hides_from_the_interpreter() -> None:
    # The face is lazy, and shows its names to type checkers; nobody else may.
    hidden = [
        short(path)
        for module, path in modules().items()
        if module != "steplog"
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Name | ast.Attribute | ast.alias)
        and "TYPE_CHECKING" in (getattr(node, key, None) for key in ("id", "attr", "name"))
    ]
    no_findings(hidden, "TYPE_CHECKING hides a circle; break the circle instead")


def test_third_party_packages_enter_in_their_named_places() -> None:
    strays = []
    for one in all_imports():
        top = _top(one.imported)
        if _is_ours(one) or top in sys.stdlib_module_names:
            continue
        file = short(modules()[one.importer])
        if not any(fnmatch.fnmatch(file, place) for place in THIRD_PARTY.get(top, [])):
            strays.append(f"{one.place} imports {one.imported}; allowed: {THIRD_PARTY.get(top)}")
    no_findings(strays, "a third-party package enters in one named place; import our module there")


def test_heavy_packages_are_loaded_when_needed() -> None:
    early = [
        f"{one.place} imports {one.imported} at module level"
        for one in all_imports()
        if one.at_module_level
        and _top(one.imported) in NEVER_AT_MODULE_LEVEL
        and not (_top(one.imported) == "pydantic" and _file(one) in MAY_LOAD_PYDANTIC)
        and not (_top(one.imported) == "torch" and fnmatch.fnmatch(_file(one), MAY_LOAD_TORCH))
    ]
    no_findings(early, "import it in the function that needs it")


def test_only_what_is_made_for_torch_imports_what_loads_it() -> None:
    shards = {
        module for module, path in modules().items() if fnmatch.fnmatch(short(path), MAY_LOAD_TORCH)
    }
    early = [
        f"{one.place} imports {one.imported} at module level"
        for one in all_imports()
        if one.at_module_level and one.imported in shards and one.importer not in shards
    ]
    no_findings(early, "import it in the function that needs it")


def _file(one: Import) -> str:
    return short(modules()[one.importer])


@pytest.mark.parametrize("file", PURE)
def test_the_core_reads_no_clock_no_chance_and_no_file(file: str) -> None:
    module = file.removesuffix(".py").replace("/", ".")
    assert module in modules(), f"{file} is gone; name its successor in PURE"
    impure = sorted({_top(one.imported) for one in imports_of(module)} & IMPURE)
    assert not impure, f"{file} must not import {impure}: pass the value in"


def test_what_says_that_it_is_pure_is_held_to_it() -> None:
    claim = re.compile(r"(?:^|[.:])\s*(?:Pure|All are pure)\b")
    claimed = [
        short(path)
        for path in modules().values()
        if claim.search(ast.get_docstring(parsed(path)) or "") and short(path) not in PURE
    ]
    no_findings(claimed, "name it in PURE, or do not say so")
