"""A part of a state by its path, through every kind of container."""

from typing import Any

import pytest
import typer

from eventlog.canonical import Registered
from replay.cli.state_part import find_part

STATE: Any = {
    "orders": {"A1": {"price": 14}, "a.b": 1, "it's [odd]": 2, 'say "hi"': 3},
    "list": [10, {"x": (20, 21)}],
    5: "five",
    (1, 2): "pair",
    b"k": "bytes",
    "7": "text seven",
    7: "seven",
    "closed": Registered("desk.order", 1, {"item": ["lamp"]}),
    "none": None,
}


@pytest.mark.parametrize(
    ("path", "part"),
    [
        ("orders.A1.price", 14),
        (".orders.A1.price", 14),
        ("$.orders.A1.price", 14),
        ('orders["a.b"]', 1),
        ("orders['a.b']", 1),
        ('orders["it\'s [odd]"]', 2),
        ("orders['say \"hi\"']", 3),
        ("list[0]", 10),
        ("list.0", 10),
        ("list[-1].x[1]", 21),
        ("list.1.x.1", 21),
        ("5", "five"),
        ("[5]", "five"),
        ("[(1, 2)]", "pair"),
        ("[b'k']", "bytes"),
        ("7", "text seven"),
        ("[7]", "seven"),
        ('["7"]', "text seven"),
        ("closed.item[0]", "lamp"),
        ("none", None),
        ("closed", STATE["closed"]),
        ("$", STATE),
        ("", STATE),
    ],
)
def test_paths(path: str, part: object) -> None:
    assert find_part(STATE, path) == part


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("orders.A2", r"no part 'A2' at \$\.orders: keys 'A1'"),
        ("list[2]", r"no part 2 at \$\.list: a list of 2"),
        ("list[1].x.2", r"at \$\.list\[1\]\.x: a tuple of 2"),
        ("none.x", r"at \$\.none: a NoneType, which has no parts"),
        ("[[]]", "neither position nor key|no path"),
        ("[[1]", "neither position nor key|no part"),
        ("[x]", "neither position nor key"),
        ("list[", "is no path"),
        ("a..b", "no part|is no path"),
        ("[{'a': 1}]", "neither position nor key|no part"),
    ],
)
def test_what_is_not_there(path: str, said: str) -> None:
    with pytest.raises(typer.BadParameter, match=said):
        find_part(STATE, path)


def test_many_keys_are_not_all_listed() -> None:
    with pytest.raises(typer.BadParameter, match="and 988 more"):
        find_part({f"k{number}": 0 for number in range(1_000)}, "x")
