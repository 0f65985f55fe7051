"""Faults that a syntax tree or a text shows by itself; `tests/house/` looks for them."""

import ast
import re

RUNS_CODE_FROM_DATA = {"eval", "exec", "compile", "__import__"}
UNPICKLES = {"pickle", "cPickle", "_pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}
IMPORTS_BY_NAME = {"import_module", "resolve_name", "run_module", "run_path"}

# Written so that this file does not match itself.
HOSTS_AND_MACHINE_PATHS = re.compile(
    r"p[y]pi[.]org|pythonh[o]sted|repo1?[.]m[a]ven|registry[.]n[p]m|proxy[.]g[o]lang"
    r"|d[e]b[.]debian|cr[a]tes[.]io|/w[o]rk/|/f[a]rm/|/h[o]me/[a-z]|/r[o]ot/[.]|/t[m]p/v3"
)
UNFINISHED = re.compile(r"\b(T[O]DO|F[I]XME|X[X]X|H[A]CK)\b")


def swallows(node: ast.AST) -> bool:
    """A handler that takes everything, and does not raise it again."""
    if not isinstance(node, ast.ExceptHandler):
        return False
    kinds = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
    names = {getattr(kind, "id", None) for kind in kinds}
    if node.type is None:
        return True
    # Everything may be caught to clean up, if it is raised again in the end.
    last = node.body[-1]
    raises_again = isinstance(last, ast.Raise) and last.exc is None
    return bool(names & {"Exception", "BaseException"}) and not raises_again


def runs_stored_code(node: ast.AST) -> bool:
    """A call or import by which bytes could become running code."""
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Name) and node.func.id in RUNS_CODE_FROM_DATA:
            return True
        return any(
            keyword.arg == "weights_only" and not getattr(keyword.value, "value", True)
            for keyword in node.keywords
        )
    if isinstance(node, ast.Import):
        return any(alias.name.partition(".")[0] in UNPICKLES for alias in node.names)
    return isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in UNPICKLES


def imports_by_name(node: ast.AST) -> bool:
    """An import whose name is a value."""
    if isinstance(node, ast.ImportFrom):
        return any(alias.name in IMPORTS_BY_NAME for alias in node.names)
    return isinstance(node, ast.Attribute) and node.attr in IMPORTS_BY_NAME


def is_a_stub(node: ast.AST) -> bool:
    """`raise NotImplementedError`."""
    if not isinstance(node, ast.Raise):
        return False
    raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
    return isinstance(raised, ast.Name) and raised.id == "NotImplementedError"


def prints(node: ast.AST) -> bool:
    """A call of `print`."""
    return isinstance(node, ast.Call) and getattr(node.func, "id", None) == "print"
