"""`TrainingBlock`: the `with` block of a training, outside of which its methods are refused."""

from typing import Literal

from eventlog.errors import ConfigError
from eventlog.event import session_id_problem

Stage = Literal["made", "could not be entered", "entered", "left"]


class TrainingBlock:
    """A training's name, and how far its block has come. `TrainingRun` is one."""

    def __init__(self, name: str) -> None:
        """`name` is the training session's id. Raises `ConfigError` where none can be."""
        problem = session_id_problem(name) if isinstance(name, str) else f"is {name!r}, no text"
        if problem is not None:
            raise ConfigError(
                f"a training's name {problem}",
                hint="give one of 1 to 255 bytes of UTF-8, without control characters",
            )
        self._name = name
        self._stage: Stage = "made"

    @property
    def name(self) -> str:
        """The training session's id."""
        return self._name

    def _require_entered(self) -> None:
        """Raise `ConfigError` before the block is entered."""
        if self._stage != "left":
            self._require_inside()

    def _require_inside(self) -> None:
        """Raise `ConfigError` outside of the block."""
        if self._stage != "entered":
            raise ConfigError(
                f"training {self._name!r} is used outside of its block ({self._stage})",
                hint="use it in its block: with ws.training(...) as run",
            )
