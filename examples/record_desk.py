"""A small environment recorded with five added lines (marked). Run it: python record_desk.py"""

import random

import steplog  # 1


class Desk:
    """Orders, and two tools; all it knows is in `state`."""

    def __init__(self, seed: int) -> None:
        self.state = {"prices": {"A1": 14, "A2": 62}, "refunded": [], "rng": random.Random(seed)}

    def refund(self, order: str) -> int:
        """Refund an order; its price. KeyError for one that is not there."""
        price = self.state["prices"][order]
        self.state["refunded"].append(order)
        return price

    def voucher(self, order: str) -> str:
        """A voucher with a random code."""
        return f"{order}-{self.state['rng'].randrange(10**6):06d}"


desk = Desk(seed=3)
plan = [("refund", "A1"), ("refund", "A9"), ("voucher", "A9"), ("refund", "A2")]
with steplog.open_workspace("runs") as ws:  # 2
    with ws.record("desk/3", environment="desk", seed=3, state=lambda: desk.state) as session:  # 3
        for tool, order in plan:
            try:
                with session.call(tool, {"order": order}) as call:  # 4
                    call.result = getattr(desk, tool)(order)
            except KeyError:
                pass  # the agent goes on; the refusal is recorded as the call's answer
        refunded = sorted(desk.state["refunded"])
        session.record_verification(float(refunded == ["A1", "A2"]), verifier="desk-rules")  # 5
