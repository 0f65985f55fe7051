"""A mirror killed at any moment goes on where it was: nothing twice, nothing left out.

A child reads a topic in small portions, scans for attempts, and checks now and then. The parent
kills it (SIGKILL) at a seeded moment; the next one finds a longer topic, and goes on with the same
file. Sometimes two read at once. At the end it is what the rule says, and what a mirror that was
never stopped is.
"""

import os
import random
import signal
import subprocess
import time
from pathlib import Path

from eventlog.mirror import Mirror
from tests.support.mirror_truth import require_true
from tests.support.processes import python_script
from tests.support.scale import scaled
from tests.support.topic import FakeTopic
from tests.support.topic_histories import TopicHistory

KILLS = scaled(14, 150)
SESSIONS = 10
ACTS_PER_LIFE = 12
LIFE_S = (0.0, 0.25)
EARLY_S = (0.15, 0.5)
"""Every fourth is killed so long after its start: while it opens, or makes, the file."""

CHILD = """
import os, random, sys
from contextlib import suppress
from eventlog.errors import LogUnavailableError
from eventlog.mirror import Mirror
from eventlog.mirroring import catching_up
from tests.crash.test_mirror_killed import topic_after

folder, seed, acts, life = sys.argv[1], *map(int, sys.argv[2:])
catching_up.BATCH_RECORDS = 3
rng = random.Random(life)
topic, names = topic_after(seed, acts)
mirror = Mirror(folder, topic.client(rng.choice((1, 2, 5))))
os.write(1, b"opened\\n")
while True:
    with suppress(LogUnavailableError):  # an open transaction at the end
        mirror.refresh({rng.randrange(len(topic.parts))}, timeout_s=0.0)
    name = rng.choice(names)
    mirror.highest_attempt(name, topic.part_of(name))
    with suppress(LogUnavailableError):
        mirror.refresh(timeout_s=0.0)
"""


def topic_after(seed: int, acts: int | None) -> tuple[FakeTopic, list[str]]:
    """The topic of a history after so many acts (None: all), and its sessions."""
    topic = FakeTopic(3)
    topic.topic_id = "the same in every process"
    history = TopicHistory(random.Random(seed), topic, SESSIONS)
    if acts is None:
        history.finish()
    else:
        history.write_some(acts)
    return topic, history.names


def start_child(folder: Path, seed: int, life: int) -> "subprocess.Popen[str]":
    """A process that reads the topic as it is in this life."""
    return python_script(CHILD, folder, str(seed), str(life * ACTS_PER_LIFE), str(life))


def run_and_kill(folder: Path, seed: int, life: int, rng: random.Random) -> None:
    """Start one child or two, and kill each at some moment."""
    children = [start_child(folder, seed, life) for _ in range(rng.choice((1, 1, 2)))]
    started = time.monotonic()
    early = life % 4 == 0
    for child in children:
        assert child.stdout is not None
        if early:
            time.sleep(max(0.0, started + rng.uniform(*EARLY_S) - time.monotonic()))
        else:
            assert child.stdout.readline() == "opened\n", child.communicate()
            time.sleep(rng.uniform(*LIFE_S))
    for child in children:
        os.kill(child.pid, signal.SIGKILL)
    for child in children:
        _, err = child.communicate()
        assert child.returncode == -signal.SIGKILL, err
        assert not err


def test_a_killed_mirror_goes_on_where_it_was(tmp_path: Path) -> None:
    rng = random.Random(41)
    seed = 7
    whole, names = topic_after(seed, None)
    grown = 0
    for life in range(KILLS):
        run_and_kill(tmp_path / "mirror", seed, life, rng)
        if life % 5 == 4:
            topic, _ = topic_after(seed, life * ACTS_PER_LIFE)
            with Mirror(tmp_path / "mirror", topic.client()) as mirror:
                require_true(mirror, topic)
                grown = sum(mirror.cut().as_dict().values())
    with (
        Mirror(tmp_path / "mirror", whole.client()) as mirror,
        Mirror(tmp_path / "straight", whole.client()) as straight,
    ):
        for each in (mirror, straight):
            each.refresh()
            require_true(each, whole)
        attempts = [
            [each.highest_attempt(name, whole.part_of(name)) for name in names]
            for each in (mirror, straight)
        ]
        listed = [sorted(each.reader.list_sessions(None)) for each in (mirror, straight)]
        aborted = [
            [each.reader.aborted(name, whole.part_of(name)) for name in names]
            for each in (mirror, straight)
        ]
    assert attempts[0] == attempts[1]
    assert listed[0] == listed[1]
    assert aborted[0] == aborted[1]
    total = sum(whole.end(part) for part in range(3))
    print(f"{KILLS} kills, {grown} of {total} offsets read by killed ones, all verdicts right")
