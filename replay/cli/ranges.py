"""Ranges as people write them on the command line: `V`, `A..B`, `A..`, `..B`, ends included."""

import typer


def parse_range(text: str | None) -> tuple[str | None, str | None]:
    """The bounds; None for an open end, or where nothing was given. Raises a usage error."""
    if text is None:
        return None, None
    least, dots, most = text.partition("..")
    if not (least or most) or ".." in most:
        raise typer.BadParameter(f"{text!r} is no range: write A..B, A.., ..B, or one value")
    return (least or None, most or None) if dots else (least, least)


def parse_step_range(text: str | None) -> tuple[int | None, int | None]:
    """As `parse_range`, of whole numbers."""
    ends = parse_range(text)
    if not all(end is None or (end.isascii() and end.isdigit() and len(end) <= 18) for end in ends):
        raise typer.BadParameter(f"{text!r} are no steps: write A..B, A.., ..B, or one number")
    least, most = (None if end is None else int(end) for end in ends)
    return least, most
