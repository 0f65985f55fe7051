"""Record sessions of a small environment: python produce_events.py [FOLDER or kafka://...]

Any number of these may run at once, on any machines that reach the servers and the topic's blobs.
"""

import random
import sys

import steplog

PLACE = sys.argv[1] if len(sys.argv) > 1 else "runs"
SESSIONS = 8


def play(ws: steplog.Workspace, seed: int) -> None:
    """One game: roll until 21 or more; 21 wins."""
    state = {"sum": 0, "dice": random.Random(seed)}
    with ws.record(environment="twenty-one", seed=seed, state=lambda: state) as session:
        while state["sum"] < 21:
            with session.call("roll", {"sides": 6}) as call:
                call.result = state["dice"].randint(1, 6)
                state["sum"] += call.result
        # Acknowledged means durable: what is printed here is in the log.
        session.record_verification(float(state["sum"] == 21), verifier="rules")
    print(session.session_id, state["sum"])


with steplog.open_workspace(PLACE) as ws:
    for seed in range(SESSIONS):
        play(ws, seed)
