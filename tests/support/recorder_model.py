"""A plain model of recorded sessions: lists of steps. It says what must stand after anything."""

from dataclasses import dataclass, field
from typing import NamedTuple

from eventlog.canonical import encode

UNKNOWN = b"unknown"
"""Stands for a state that nobody recorded; no canonical bytes begin like it and go on so."""


class Step(NamedTuple):
    """One standing event: its kind, the state after it (None: the session has none), and more."""

    kind: str
    state: bytes | None
    called_step: int | None = None
    reward: float | None = None
    about_step: int | None = None
    supersedes: int | None = None


@dataclass
class SessionModel:
    """One session: its line from step 0 on, a branch's prefix included."""

    line: list[Step] = field(default_factory=list)
    first_own: int = 0
    status: str = "open"
    superseded: int = 0

    def add(self, kind: str, state: bytes | None, **more: object) -> None:
        """The next step stands."""
        self.line.append(Step(kind, state, **more))  # type: ignore[arg-type]

    @property
    def state(self) -> bytes | None:
        """The state after the last step."""
        return self.line[-1].state

    def rewind(self, step: int) -> None:
        """A claim goes on after `step`: what came later is set aside."""
        self.superseded += len(self.line) - step - 1
        del self.line[step + 1 :]
        self.add("session_resumed", self.state)
        self.status = "open"

    def branch(self, step: int) -> "SessionModel":
        """A branch that stands on `step`."""
        made = SessionModel(self.line[: step + 1], step + 1, "released")
        made.add("session_forked", made.state)
        return made

    @property
    def open_calls(self) -> list[int]:
        """Steps of the calls without a return, in the order they were issued."""
        answered = {one.called_step for one in self.line}
        return [
            step
            for step, one in enumerate(self.line)
            if one.kind == "tool_called" and step not in answered
        ]

    @property
    def reward(self) -> float | None:
        """The last judgement that nothing supersedes, else the sum of the step rewards."""
        gone = {one.supersedes for one in self.line}
        judged = [
            one.reward
            for step, one in enumerate(self.line)
            if one.kind == "verified"
            and one.reward is not None
            and one.about_step is None
            and step not in gone
        ]
        if judged:
            return judged[-1]
        steps = [
            one.reward
            for one in self.line
            if one.kind == "tool_returned" and one.reward is not None
        ]
        total = 0.0
        for reward in steps:
            total += reward
        return total if steps else None

    def known_around(self, step: int) -> tuple[int, int | None]:
        """The last and the next known step around an unknown one."""
        last = step
        while self.line[last].state == UNKNOWN:
            last -= 1
        later = range(step, len(self.line))
        return last, next((each for each in later if self.line[each].state != UNKNOWN), None)


@dataclass
class LiveState:
    """An environment's state, changed in place."""

    value: dict[str, object] = field(default_factory=lambda: {"n": 0, "items": []})

    def change(self, number: int) -> None:
        """Do one of a few things to it."""
        items = self.value["items"]
        assert isinstance(items, list)
        if number % 3 == 0:
            self.value["n"] = number
        elif number % 3 == 1:
            items.append(f"item {number}")
        elif items:
            items.pop(number % len(items))

    def encoded(self) -> bytes:
        """Its canonical bytes now."""
        return encode(self.value)
