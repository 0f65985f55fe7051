"""`pages`: reading rows in order, page after page, from tables that may be damaged.

A damaged page can hold rows that are not in order. Whoever went on from the last row of such a page
would come back to where it was, and read for ever.
"""

from collections.abc import Callable, Iterator, Sequence
from operator import lt
from typing import Any, TypeVar

from eventlog.sqlite.seal import damaged

Row = TypeVar("Row")
Place = TypeVar("Place", int, tuple[int, int])


def pages(
    read: Callable[[Place], Sequence[Row]],
    place_of: Callable[[Row], Any],
    after: Place,
    what: str,
) -> Iterator[Sequence[Row]]:
    """The pages that `read` gives, each of rows after a place, until it gives none.

    Raises `EventCorruptError` naming `what` at the first row whose place is not above that of the
    row before it; the rows before it have been given by then.
    """
    while True:
        page: Sequence[Row] = read(after)
        if not page:
            return
        places: list[Any] = [after, *map(place_of, page)]
        if not all(map(lt, places, places[1:])):
            sound = next(index for index in range(len(page)) if places[index] >= places[index + 1])
            if sound:
                yield page[:sound]
            raise damaged(f"{what} do not stand in their order (after {places[sound]})")
        yield page
        after = places[-1]
