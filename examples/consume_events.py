"""Count what comes into a log: python consume_events.py [FOLDER or kafka://...]

Run it again, and it goes on where it stopped: how far it came is kept in the log. Killed before it
said so, it sees the last events a second time; so count by session and step where that matters.
"""

import sys
from collections import Counter

import steplog

PLACE = sys.argv[1] if len(sys.argv) > 1 else "runs"
GROUP = "reward-counter"

calls: Counter[str] = Counter()
rewards: list[float] = []
with steplog.open_workspace(PLACE, create=False) as ws:
    cut = ws.log.committed_cut(GROUP)
    for record in ws.log.tail_events(cut):  # up to the present end
        event = ws.event_of(record)
        if event.kind == "tool_called":
            calls[event.body.tool] += 1
        elif event.kind == "verified" and event.body.reward is not None:
            rewards.append(event.body.reward)
        cut = cut.including(record.partition, record.offset)
    ws.log.commit_cut(GROUP, cut)
mean = f"{sum(rewards) / len(rewards):.2f}" if rewards else "none"
print(f"calls: {dict(calls)}, verifications: {len(rewards)}, mean reward: {mean}")
