"""Tables on a terminal: what names a row is never cut; text is shortened, minor columns go first.

`fit_columns` decides and is pure; `print_table` draws with rich, which is loaded only there.
"""

from collections.abc import Mapping, Sequence
from typing import Final

NEVER_CUT: Final = frozenset({"SESSION", "STATUS", "KIND", "VERDICT", "STEP", "STEPS"})
"""Headings of columns that stay whole: a session's id is there to be copied."""

SHORTENED: Final = frozenset(
    {
        *("ACTOR", "ENVIRONMENT", "FILE", "NAME", "PARENT", "PATH", "TASK", "TOOL"),
        *("AFTER", "ARGUMENTS", "BEFORE", "CONTENT", "FOUND", "HINT", "RESULT"),
    }
)
"""Headings of columns of text, whose cells may be cut to fit; numbers and times never are."""

TEXT_WIDTH_MIN: Final = 10
"""A column of text is not cut below so many cells, as long as a minor column can go instead."""

GAP: Final = 2
"""Cells between two columns."""


def fit_columns(widths: Mapping[str, int], room: int, minor: Sequence[str]) -> dict[str, int]:
    """The columns to draw in `room` cells, each with its width.

    `widths` are those that the cells want. Minor columns are left out one by one, the first named
    first, only where shortening text is not enough. Where nothing else helps, the session's id
    keeps what room there is, and is folded.
    """
    least = {name: _least(name, width) for name, width in widths.items()}
    spare = room + GAP - sum(least.values()) - GAP * len(least)
    gone: list[str] = []
    for name in minor:
        if spare < 0 and name in least:
            spare += least.pop(name) + GAP
            gone.append(name)
    for name in reversed(gone):  # A narrow one may find room again beside what came to go.
        if (width := _least(name, widths[name])) + GAP <= spare:
            least[name] = width
            spare -= width + GAP
    if spare >= 0:
        kept = {name: width for name, width in widths.items() if name in least}
        return _widened({name: least[name] for name in kept}, kept, spare)
    for name in ("SESSION", *SHORTENED):
        if spare < 0 and name in least:
            less = min(least[name], max(TEXT_WIDTH_MIN, least[name] + spare))
            spare += least[name] - less
            least[name] = less
    return least


def _least(heading: str, width: int) -> int:
    is_text = heading in SHORTENED
    return min(width, max(TEXT_WIDTH_MIN, len(heading))) if is_text else width


def _widened(least: Mapping[str, int], wanted: Mapping[str, int], spare: int) -> dict[str, int]:
    """Give the spare cells to the columns that are cut, to the narrowest first."""
    given = dict(least)
    while spare > 0:
        cut = [name for name in given if given[name] < wanted[name]]
        if not cut:
            break
        given[min(cut, key=given.__getitem__)] += 1
        spare -= 1
    return given


def print_table(
    headings: Sequence[str], rows: Sequence[Sequence[str]], minor: Sequence[str]
) -> tuple[str, ...]:
    """Draw a table as wide as the terminal; the headings that found no room."""
    from rich.box import SIMPLE_HEAD
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    columns = dict(zip(headings, zip(*rows, strict=True), strict=True))
    widths = {name: max(cell_len(name), *map(cell_len, cells)) for name, cells in columns.items()}
    drawn = fit_columns(widths, console.width, minor)
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, GAP - 1, 0, 0))
    for name, width in drawn.items():
        is_cut = name in SHORTENED
        table.add_column(
            name, width=width, no_wrap=is_cut, overflow="ellipsis" if is_cut else "fold"
        )
    for cells in zip(*(columns[name] for name in drawn), strict=True):
        table.add_row(*map(Text, cells))  # `Text`: recorded [brackets] are no markup.
    console.print(table)
    return tuple(name for name in headings if name not in drawn)
