"""`Invocation`: what the global options said, for the verbs to read.

Global options may stand anywhere on the command line (`steplog sessions --json` is what people
type), so no verb has an option of these names.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import typer

DEFAULT_WORKSPACE: Final = "./steplog-data"
WORKSPACE_VARIABLE: Final = "STEPLOG_WORKSPACE"

GLOBAL_FLAGS: Final = frozenset(
    {"--json", "-q", "--quiet", "-v", "--verbose", "--no-refresh", "--allow-truncated"}
)
GLOBAL_OPTIONS: Final = frozenset({"-w", "--workspace"})


class Invocation(NamedTuple):
    """The global options of one run of the command. The last two are for logs in Kafka."""

    workspace: str
    as_json: bool
    quiet: bool
    verbose: bool
    refresh: bool = True
    allow_truncated: bool = False

    @classmethod
    def of(cls, context: typer.Context) -> "Invocation":
        """The invocation that a verb was called in."""
        found = context.find_object(cls)
        assert found is not None, "the root callback stores it before any verb runs"
        return found


def hoist_global_options(arguments: Sequence[str]) -> list[str]:
    """The same command line with the global options first, each with its value; `--` ends them."""
    hoisted: list[str] = []
    others: list[str] = []
    pending = list(arguments)
    while pending:
        argument = pending.pop(0)
        if argument == "--":
            others += [argument, *pending]
            break
        if argument in GLOBAL_FLAGS or argument.startswith("--workspace="):
            hoisted.append(argument)
        elif argument in GLOBAL_OPTIONS:
            if not pending:
                return [argument]  # Its value was forgotten: that is what is to be answered.
            hoisted += [argument, *pending[:1]]
            pending = pending[1:]
        else:
            others.append(argument)
    return hoisted + others
