"""The workspace that a verb works on, and the sessions that its arguments name.

Verbs that read never make a workspace. A session that is not there is answered with those whose
names are near.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from itertools import islice
from typing import Final

import typer

from eventlog.errors import IntegrityError, SessionNotFoundError
from replay.cli.address import Address, parse_address
from replay.cli.invocation import Invocation
from replay.cli.kafka_notes import tell_of_copy, warn_of_variables
from replay.cli.output import Output
from replay.workspace import Workspace, open_workspace

COMPARED_NAMES_MAX: Final = 20_000
"""Sessions that are looked at for near names: an error must come at once."""

NEAR_NAMES_MAX: Final = 3


@contextmanager
def opened(context: typer.Context, *, create: bool = False) -> Iterator[Workspace]:
    """The invocation's workspace, open while the block runs; made if missing only with `create`.

    A `SessionNotFoundError` leaves the block with a hint that names near sessions.
    """
    asked, output = Invocation.of(context), Output.of(context)
    warn_of_variables(output, asked.workspace)
    with open_workspace(
        asked.workspace,
        create=create,
        refresh=asked.refresh,
        allow_truncated=asked.allow_truncated,
    ) as ws:
        if not asked.refresh:
            tell_of_copy(output, ws)
        try:
            yield ws
        except SessionNotFoundError as error:
            near = near_names(ws, error.session_id or "")
            if near:
                error.hint = f"did you mean {' or '.join(map(repr, near))}?"
            raise


def near_names(ws: Workspace, name: str) -> list[str]:
    """Up to three sessions whose names are like `name`, or continue it."""
    try:
        names = [info.session_id for info in islice(ws.sessions(), COMPARED_NAMES_MAX)]
    except IntegrityError:
        return []  # What is wrong with the log is for `check` to say.
    near = get_close_matches(name, names, NEAR_NAMES_MAX)
    longer = (each for each in names if name and each.startswith(name) and each not in near)
    return [*near, *islice(longer, NEAR_NAMES_MAX)][:NEAR_NAMES_MAX]


def find_address(ws: Workspace, text: str) -> Address:
    """The session and the step that `text` names. A step alone is checked by who reads it."""
    return parse_address(text, ws.log.holds_session)
