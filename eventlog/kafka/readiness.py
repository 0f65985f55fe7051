"""`Readiness`: whether a writer's topic can be written to, by when that must be known, and why not.

Used by one thread, the writer's.
"""

import copy
import time
from collections.abc import Callable
from typing import Final

from eventlog.errors import LogUnavailableError
from eventlog.kafka.errors import faults_as_ours
from eventlog.kafka.topic_writer import TopicWriter

SAME_ANSWER_S: Final = 0.5
"""When the brokers were not reached, whatever is due so soon after is not tried by itself."""


class Readiness:
    """The deadline of what is being done, and a producer by then."""

    def __init__(self, topic: TopicWriter, deadline_s: float) -> None:
        self.deadline = 0.0
        """When what is being done must have its answer, on the monotonic clock."""
        self._topic = topic
        self._deadline_s = deadline_s
        self._latest = 0.0
        self._unready: LogUnavailableError | None = None
        self._unready_until = 0.0

    def begin(self) -> None:
        """Requests are taken: whatever their own deadlines are, they wait no longer than usual."""
        self._latest = time.monotonic() + self._deadline_s

    def hurry(self, deadline: float) -> None:
        """What is done from now on is due then, if not before."""
        self.deadline = min(self._latest, deadline)

    @property
    def left_s(self) -> float:
        """The time that is left, in seconds."""
        return max(0.0, self.deadline - time.monotonic())

    def must_wait(self, deadline: float) -> bool:
        """Whether what is due then has to wait for the brokers, which were not reached lately."""
        return (
            self._unready is not None
            and deadline > self._unready_until
            and not self._topic.is_ready
        )

    def require(self, reread: Callable[[], None]) -> None:
        """Have a producer; where it was lost, `reread` finds out what became of what was sent.

        Where the brokers were not reached, that is the answer for all that is due by now: else
        each of the many that wait would be tried for a moment, one after the other. Raises errors
        of ours.
        """
        if self._topic.is_ready:
            return
        if self._unready is not None and self.deadline <= self._unready_until:
            raise copy.copy(self._unready)
        try:
            with faults_as_ours():
                self._topic.make_ready(self.deadline, reread)
        except LogUnavailableError as error:
            self._unready = copy.copy(error)
            self._unready_until = time.monotonic() + min(SAME_ANSWER_S, self._deadline_s / 4)
            raise
        self._unready = None

    def late(self) -> LogUnavailableError:
        """What is said where nothing was in the way but time."""
        return LogUnavailableError(
            f"{self._topic.place} did not commit within {self._deadline_s:g} s",
            hint="check the brokers with `steplog doctor`, then try again",
        )
