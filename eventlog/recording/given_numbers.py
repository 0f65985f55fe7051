"""Rewards, components and durations as callers give them, made what the schema holds."""

from collections.abc import Mapping

from eventlog.errors import ValueNotEncodableError
from eventlog.values.value_path import path_step


def reward_number(reward: float | None, *, path: str = "$.reward") -> float | None:
    """A reward as the schema has it: callers also have ints, bools and numpy's numbers.

    Raises `ValueNotEncodableError` at `path` for a number beyond every float.
    """
    return None if reward is None else _number(reward, path)


def component_numbers(components: Mapping[str, float] | None) -> dict[str, float]:
    """The parts of a reward by name. Raises `ValueNotEncodableError` as `reward_number`."""
    return {
        name: _number(part, f"$.components{path_step(name)}")
        for name, part in (components or {}).items()
    }


def require_duration(duration_us: int | None) -> None:
    """Raise `ValueNotEncodableError` for a time that would have passed backwards."""
    if duration_us is not None and duration_us < 0:
        raise ValueNotEncodableError(
            f"a duration is 0 microseconds or more, not {duration_us}",
            hint="measure with time.monotonic_ns; leave it out where it is not known",
            path="$.duration_us",
        )


def _number(given: float, path: str) -> float:
    try:
        return float(given)
    except OverflowError:
        raise ValueNotEncodableError(
            f"the number at {path} is beyond every float",
            hint="scale it to what a 64-bit float holds; float('inf') is a reward too",
            path=path,
        ) from None
