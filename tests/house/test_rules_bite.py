"""The house rules find what they are for: a rule that never fails is no rule."""

import ast
from collections.abc import Callable

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


@pytest.mark.parametrize(
    ("is_fault", "source", "expected"),
    [
        (swallows, "try: f()\nexcept: pass", True),
        (swallows, "try: f()\nexcept Exception: g()", True),
        (swallows, "try: f()\nexcept (ValueError, Exception) as e: return None", True),
        (swallows, "try: f()\nexcept Exception: raise", False),
        (swallows, "try: f()\nexcept Exception:\n    if g(): raise\n    h()", True),
        (swallows, "try: f()\nexcept BaseException as e: keep(e)", True),
        (swallows, "try: f()\nexcept BaseException:\n    g()\n    raise", False),
        (swallows, "try: f()\nexcept (OSError, ValueError): pass", False),
        (runs_stored_code, "eval(text)", True),
        (runs_stored_code, "exec(text)", True),
        (runs_stored_code, "import pickle", True),
        (runs_stored_code, "from pickle import loads", True),
        (runs_stored_code, "torch.load(f, weights_only=False)", True),
        (runs_stored_code, "torch.load(f, weights_only=True)", False),
        (runs_stored_code, "re.compile(text)", False),
        (imports_by_name, "importlib.import_module(name)", True),
        (imports_by_name, "from importlib import import_module", True),
        (imports_by_name, "from importlib.metadata import version", False),
        (is_a_stub, "raise NotImplementedError", True),
        (is_a_stub, "raise NotImplementedError('later')", True),
        (is_a_stub, "raise ValueError", False),
        (prints, "print(1)", True),
        (prints, "console.print(1)", False),
    ],
)
def test_faults_in_code_are_found(
    is_fault: Callable[[ast.AST], bool], source: str, expected: bool
) -> None:
    assert any(is_fault(node) for node in ast.walk(ast.parse(source))) is expected


def test_words_that_never_land_are_found() -> None:
    # Put together here, because this file too is searched for them.
    for words in [("py", "pi.org"), ("/wo", "rk/main"), ("https://cr", "ates.io")]:
        assert HOSTS_AND_MACHINE_PATHS.search("".join(words))
    for words in [("# TO", "DO: later"), ("# FIX", "ME")]:
        assert UNFINISHED.search("".join(words))
    assert not UNFINISHED.search("the todo list")
