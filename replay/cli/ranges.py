"""Ranges as people write them on the command line: `V`, `A..B`, `A..`, `..B`, ends included."""

import typer

from eventlog.policy_order import is_in_range, label_parts


def parse_range(text: str | None) -> tuple[str | None, str | None]:
    """The bounds; None for an open end, or where nothing was given. Raises a usage error."""
    if text is None:
        return None, None
    least, dots, most = text.partition("..")
    if not (least or most) or ".." in most:
        raise typer.BadParameter(f"{text!r} is no range: write A..B, A.., ..B, or one value")
    return (least or None, most or None) if dots else (least, least)


def parse_policy_range(text: str | None) -> tuple[str | None, str | None]:
    """As `parse_range`, of policy versions. A usage error too where no version can be in it."""
    least, most = parse_range(text)
    if least is not None and most is not None and not is_in_range(least, None, most):
        if (label_parts(least) is None) != (label_parts(most) is None):
            raise typer.BadParameter(f"{text!r}: a number and another text do not compare")
        raise typer.BadParameter(_ends_before_it_begins(text))
    return least, most


def parse_step_range(text: str | None) -> tuple[int | None, int | None]:
    """As `parse_range`, of whole numbers. A usage error too where no number is in it."""
    ends = parse_range(text)
    if not all(end is None or (end.isascii() and end.isdigit() and len(end) <= 18) for end in ends):
        raise typer.BadParameter(f"{text!r} are no steps: write A..B, A.., ..B, or one number")
    least, most = (None if end is None else int(end) for end in ends)
    if least is not None and most is not None and least > most:
        raise typer.BadParameter(_ends_before_it_begins(text))
    return least, most


def _ends_before_it_begins(text: str | None) -> str:
    return f"nothing is in {text!r}: the lower end stands first"
