"""steplog's own sessions, of trainings, checkpoint sets and policies: told from users' by name.

Whoever went on with one as with a session of an environment would take a trainer's claim.
"""

from typing import Final

from eventlog.errors import ConfigError
from eventlog.log import SessionInfo
from snapshots.sets.journal import TRAINING
from snapshots.sets.members import OWN_PREFIX, is_own


def users_environment(environment: str) -> str:
    """The environment, of a session of a user's. Raises `ConfigError` for one of steplog's own."""
    if isinstance(environment, str) and is_own(environment):
        raise ConfigError(
            f"environment {environment!r} is one of steplog's own",
            hint=f"give it a name that does not begin with {OWN_PREFIX!r}; ws.training(name) "
            "begins a training",
        )
    return environment


def refuse_own(info: SessionInfo) -> None:
    """Raise `ConfigError` for a session that no user may go on with."""
    if not is_own(info.environment):
        return
    name = info.session_id
    raise ConfigError(
        f"session {name!r} is one of steplog's own ({info.environment}): to go on with it would "
        "take it from whoever trains",
        hint=_OF_TRAININGS.format(name) if info.environment == TRAINING else _OF_OTHERS,
        session_id=name,
    )


def require_training_session(info: SessionInfo) -> None:
    """Raise `ConfigError` where the session is not a training's."""
    if info.environment != TRAINING:
        raise ConfigError(
            f"session {info.session_id!r} is no training, but of environment {info.environment!r}",
            hint="give the training a name that no session has",
            session_id=info.session_id,
        )


_OF_TRAININGS: Final = "`with ws.training({!r})` goes on with the training, and closes it"
_OF_OTHERS: Final = "it can be read; give a session of yours another name"
