"""A small environment to record, and what is true of each recorded session: its state by step.

The desk handles orders, keeps a queue and a ledger, and draws from a generator that is part of its
state. What it does is decided by a seed, so two desks with one seed do the same.
"""

import random
from typing import Any

from eventlog.canonical import encode
from eventlog.recorder import SessionRecorder


class Desk:
    """The live environment; `state` is what is recorded."""

    def __init__(self, seed: int = 0) -> None:
        self.state: dict[str, Any] = {
            "orders": {f"o{number}": {"status": "new", "notes": []} for number in range(4)},
            "queue": [],
            "ledger": {"sum": 0.0, "entries": 0},
            "rng": random.Random(seed),
        }

    def act(self) -> tuple[str, dict[str, object], object]:
        """Use one tool; its name, its arguments and its result."""
        rng: random.Random = self.state["rng"]
        tool = rng.choice(("refund", "note", "enqueue", "dequeue", "drop", "look"))
        order = f"o{rng.randrange(6)}"
        orders = self.state["orders"]
        if tool == "refund":
            orders[order] = {"status": "refunded", "notes": [rng.randrange(100)]}
            self.state["ledger"]["sum"] += 0.1
            self.state["ledger"]["entries"] += 1
        elif tool == "note" and order in orders:
            orders[order]["notes"].append("note " * rng.randrange(3))
        elif tool == "enqueue":
            self.state["queue"].append((order, rng.random()))
        elif tool == "dequeue" and self.state["queue"]:
            self.state["queue"].pop(0)
        elif tool == "drop":
            orders.pop(order, None)
        return tool, {"order": order}, {"ok": True, "left": len(orders)}


class Told:
    """The truth about a session while it is recorded: canonical state bytes after each step."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.states: list[bytes] = []

    def note(self, session: SessionRecorder) -> None:
        """The state is what it is now, for every step since the last note."""
        self.states += [encode(self.desk.state)] * (session.step + 1 - len(self.states))

    def play(self, session: SessionRecorder, calls: int, *, result_bytes: int = 0) -> None:
        """Record so many calls; each leaves two steps, the first with the state before it."""
        self.note(session)
        for _ in range(calls):
            before = encode(self.desk.state)
            tool, arguments, result = self.desk.act()
            step = session.record_tool_call(tool, arguments)
            self.states.append(before)
            assert step == len(self.states) - 1
            session.record_tool_return(step, "x" * result_bytes if result_bytes else result)
            self.note(session)
