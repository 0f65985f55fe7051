"""A help desk: a small live environment with several tools, a rule-based verifier, and chance.

All of its state is one plain dict, a random generator included, so that a restored desk goes on
exactly as the lost one would have.
"""

import random
from typing import TypeAlias

Arguments: TypeAlias = dict[str, object]

_ITEMS = ("lamp", "kettle", "desk", "chair", "rug", "clock", "radio", "mug")


class DeskError(Exception):
    """A tool refused what it was asked to do."""


class Desk:
    """Orders, refunds and vouchers. `state` may be captured at any moment and set back later."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        orders = {
            f"A{number}": {
                "item": rng.choice(_ITEMS),
                "price": rng.randrange(5, 200),
                "delivered": rng.random() < 0.7,
                "refunded": 0,
            }
            for number in range(1, 13)
        }
        self.state: dict[str, object] = {
            "orders": orders,
            "notes": [],
            "vouchers": {},
            "cash": 1_000,
            "rng": rng,
        }

    def use(self, tool: str, arguments: Arguments) -> object:
        """Run one tool. Raises `DeskError` where the desk's rules forbid it."""
        tools = {
            "lookup": self._lookup,
            "refund": self._refund,
            "voucher": self._voucher,
            "note": self._note,
        }
        return tools[tool](arguments)

    def verify(self) -> tuple[float, dict[str, float]]:
        """The reward and its components: was money handed out by the rules, and was it noted?"""
        orders = self._orders()
        refunds = [order for order in orders.values() if order["refunded"]]
        rightful = all(order["delivered"] for order in refunds)
        balanced = self.state["cash"] == 1_000 - sum(int(o["refunded"]) for o in refunds)
        notes = self.state["notes"]
        noted = isinstance(notes, list) and len(notes) >= len(refunds)
        parts = {"policy": float(rightful), "balance": float(balanced), "notes": float(noted)}
        return min(parts.values()), parts

    def _lookup(self, arguments: Arguments) -> object:
        return dict(self._order(arguments))

    def _refund(self, arguments: Arguments) -> object:
        order = self._order(arguments)
        if order["refunded"]:
            raise DeskError(f"{arguments['order']} was refunded already")
        order["refunded"] = order["price"]
        self.state["cash"] = int(str(self.state["cash"])) - int(order["price"])
        return {"refunded": order["price"]}

    def _voucher(self, arguments: Arguments) -> object:
        rng, vouchers = self.state["rng"], self.state["vouchers"]
        assert isinstance(rng, random.Random)
        assert isinstance(vouchers, dict)
        code = f"V{rng.randrange(10**6):06d}"
        vouchers[code] = arguments["order"]
        return code

    def _note(self, arguments: Arguments) -> object:
        notes = self.state["notes"]
        assert isinstance(notes, list)
        notes.append(str(arguments["text"]))
        return len(notes)

    def _orders(self) -> dict[str, dict[str, int]]:
        orders = self.state["orders"]
        assert isinstance(orders, dict)
        return orders

    def _order(self, arguments: Arguments) -> dict[str, int]:
        order = self._orders().get(str(arguments["order"]))
        if order is None:
            raise DeskError(f"no order {arguments['order']!r}")
        return order
