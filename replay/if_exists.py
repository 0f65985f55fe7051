"""`IfExists`: what becomes of a session that is to begin where its id is taken."""

from collections.abc import Callable, Iterator
from typing import Literal, get_args

from eventlog.errors import ConfigError, SessionExistsError
from eventlog.recorder import SessionRecorder

IfExists = Literal["fail", "resume", "new"]


def open_session(
    session_id: str,
    if_exists: IfExists,
    holds: Callable[[str], bool],
    begin: Callable[[str], SessionRecorder],
    resume: Callable[[str], SessionRecorder],
) -> SessionRecorder:
    """Begin the session, or what `if_exists` says where its id is taken.

    `holds` says whether an id is taken. Raises `ConfigError` for an unknown `if_exists`,
    `SessionExistsError`, and what `begin` and `resume` raise.
    """
    if if_exists not in get_args(IfExists):
        raise ConfigError(
            f"if_exists={if_exists!r} is unknown", hint=f"give one of {get_args(IfExists)}"
        )
    for name in _candidate_ids(session_id, if_exists):
        # Looked for first: the state would be captured in vain. Another may still come between.
        if if_exists == "fail" or not holds(name):
            try:
                return begin(name)
            except SessionExistsError as error:
                if if_exists == "fail":
                    error.hint = (
                        "choose another id; or pass if_exists='resume' to go on with the session, "
                        "if_exists='new' to begin another beside it; or fork it"
                    )
                    raise
        if if_exists == "resume":
            return resume(name)
    raise AssertionError("candidate ids never end")


def _candidate_ids(session_id: str, if_exists: IfExists) -> Iterator[str]:
    yield session_id
    number = 2
    while if_exists == "new":
        yield f"{session_id}~{number}"
        number += 1
