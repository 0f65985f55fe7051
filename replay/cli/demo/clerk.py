"""The clerk: a scripted agent at the desk, and how its work is recorded.

Run as a module it records one session in a process of its own and prints the step of each event
that is durable, so that the demo can kill it and know what must have survived.
"""

import random
import sys
from collections.abc import Callable, Iterator

from eventlog.recorder import SessionRecorder
from replay.cli.demo.desk import Arguments, Desk, DeskError
from replay.workspace import open_workspace

TURNS = 12


def plan_calls(seed: int, *, careful: bool) -> Iterator[tuple[str, Arguments]]:
    """What the clerk means to do, drawn from a generator of its own (not the desk's)."""
    rng = random.Random(f"clerk {seed}")
    for _ in range(TURNS):
        order = f"A{rng.randrange(1, 14)}"
        yield "lookup", {"order": order}
        yield "refund" if careful or rng.random() < 0.8 else "voucher", {"order": order}
        yield "note", {"text": f"handled {order}"}
        if rng.random() < 0.5:
            yield "voucher", {"order": order}


def serve(
    session: SessionRecorder,
    desk: Desk,
    seed: int,
    *,
    careful: bool = True,
    skip: int = 0,
    acknowledged: Callable[[int], None] | None = None,
) -> None:
    """Play the plan from call number `skip` on, recording every call, then verify."""
    for number, (tool, arguments) in enumerate(plan_calls(seed, careful=careful)):
        if tool == "refund" and careful and not _delivered(desk, arguments):
            tool = "voucher"
        if number < skip:
            continue
        try:
            with session.call(tool, arguments, call_id=f"call-{number}") as call:
                call.result = desk.use(tool, arguments)
        except DeskError:
            pass  # A refused tool is an answer like any other; it stands in the log.
        if acknowledged is not None:
            acknowledged(session.step)
    reward, components = desk.verify()
    session.record_verification(reward, verifier="desk-rules", components=components)


def _delivered(desk: Desk, arguments: Arguments) -> bool:
    try:
        order = desk.use("lookup", arguments)
    except DeskError:
        return True
    return isinstance(order, dict) and bool(order["delivered"]) and not order["refunded"]


def main() -> None:
    """`python -m replay.cli.demo.clerk WORKSPACE SESSION SEED`: record, one line per call."""
    place, session_id, seed = sys.argv[1], sys.argv[2], int(sys.argv[3])
    desk = Desk(seed)
    with (
        open_workspace(place) as ws,
        ws.record(session_id, environment="desk", state=lambda: desk.state, seed=seed) as session,
    ):
        serve(session, desk, seed, acknowledged=lambda step: print(step, flush=True))


if __name__ == "__main__":
    main()
