"""`NOT_GIVEN`: the default of arguments for which None is a value of its own."""

from typing import Final


class NotGiven:
    """The type of `NOT_GIVEN`."""

    def __repr__(self) -> str:
        return "NOT_GIVEN"


NOT_GIVEN: Final = NotGiven()
