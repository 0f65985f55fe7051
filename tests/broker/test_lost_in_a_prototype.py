"""Histories that lost events in a prototype, or would have misled a reader; each a rule's reason.

Every one is run twice: as it is, where the topic must be what its writers were told, and with the
rule broken, where it must not. So each test is known to bite.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eventlog.kafka.connection import open_client
from tests.support.brokers import KafkaAddress
from tests.support.log_workers import Worker, Workers, working
from tests.support.topic_truth import Judgement, answers_of, judge_topic, read_topic

pytestmark = pytest.mark.kafka

TRANSACTION_TIMEOUT_MS = 1_000
DEADLINE_S = 5.0
ABORTED_WITHIN_S = 30.0
"""Brokers look for transactions that are over their time once a second; busy ones later."""


class Scene:
    """Workers on a topic of one partition, and its judgement at the end."""

    def __init__(self, workers: Workers, bootstrap: str, topic: str) -> None:
        self.workers = workers
        self.bootstrap = bootstrap
        self.topic = topic

    def judge(self) -> Judgement:
        """What the topic holds, once all have ended."""
        self.workers.finish()
        client = open_client(self.bootstrap.split(","), self.topic)
        try:
            writers = [writer for worker in self.workers.all for writer in worker.writers]
            records = read_topic(client, writers)
        finally:
            client.close()
        return judge_topic(records, answers_of(self.workers.reports), 1)

    def seed(self, worker: Worker, session: str) -> None:
        """A session of the worker's, with some events."""
        assert self.workers.ask(worker, "seed", kind="given", session=session)["written"]
        assert self.append(worker, session)

    def append(self, worker: Worker, session: str) -> bool:
        """Whether two appends to the session were acknowledged."""
        done = self.workers.ask(worker, "append", sessions=[session], batches=[1, 2])
        return bool(done["written"][0])

    def claim(self, worker: Worker, session: str) -> int | None:
        """The attempt that the worker has the session under now."""
        done = self.workers.ask(worker, "claim", sessions=[session])
        attempts: dict[str, int] = done.get("attempts", {})
        return attempts.get(session)

    def hit(self, worker: Worker, moment: str, how: str, do: str, **arguments: object) -> int:
        """Have the worker stop or kill itself at a moment of what it is told to do."""
        self.workers.ask(
            worker, "arm", moment=moment, how=how, claims_only=do in ("claim", "resume")
        )
        command = worker.order(do, **arguments)
        self.workers.await_until(lambda: any(each.name == "hit" for each in worker.reports))
        if how == "stop":
            worker.await_stop()
        return command

    def await_aborts(self) -> None:
        """Wait until nothing is open in the topic: what was left there is over its time."""
        from kafka import KafkaConsumer, TopicPartition

        partition = TopicPartition(self.topic, 0)
        readers = [
            KafkaConsumer(bootstrap_servers=self.bootstrap, isolation_level=level)
            for level in ("read_committed", "read_uncommitted")
        ]
        deadline = time.monotonic() + ABORTED_WITHIN_S
        while len({reader.end_offsets([partition])[partition] for reader in readers}) > 1:
            assert time.monotonic() < deadline, "a transaction is still open"
            time.sleep(0.05)
        for reader in readers:
            reader.close()

    def go_on(self, worker: Worker, command: int) -> None:
        """Continue a stopped worker, and await what it was doing."""
        worker.thaw()
        self.workers.await_until(lambda: command not in worker.commands)


@pytest.fixture
def scene(
    kafka_broker: KafkaAddress, new_topic: Callable[..., str], tmp_path: Path
) -> Iterator[Scene]:
    topic = new_topic(1)
    with working(
        kafka_broker.bootstrap, topic, tmp_path, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS
    ) as workers:
        yield Scene(workers, kafka_broker.bootstrap, topic)


def verdict(judgement: Judgement, *, rule_broken: bool, loses: bool) -> None:
    """All is well; or, with the rule broken, what it is for has happened."""
    if not rule_broken:
        assert judgement.wrong == []
        assert (judgement.lost, judgement.twice) == (0, 0)
    else:
        assert judgement.wrong
        assert (judgement.lost > 0) == loses, judgement


@pytest.mark.parametrize("rule_broken", [False, True])
def test_a_claim_goes_through_the_producer_that_fenced_the_owner(
    scene: Scene, rule_broken: bool
) -> None:
    """The claimant pauses between fencing and claiming; the owner comes back, and writes on.

    Whoever initialises the owner's id last can commit: so the owner's return must undo the claim.
    """
    owner = scene.workers.start("owner")
    broken = "claims through its own producer" if rule_broken else ""
    claimant = scene.workers.start("claimant", broken=broken)
    scene.seed(owner, "s")
    claim = scene.hit(claimant, "unsent", "stop", "claim", sessions=["s"])
    assert scene.append(owner, "s"), "nobody has claimed it yet"
    scene.go_on(claimant, claim)
    verdict(scene.judge(), rule_broken=rule_broken, loses=True)


@pytest.mark.parametrize("rule_broken", [False, True])
def test_the_end_is_not_where_another_transaction_is_open(scene: Scene, rule_broken: bool) -> None:
    """What the owner was told is behind a stranger's open transaction; a claimant must see it."""
    broken = "reads to the last stable offset" if rule_broken else ""
    owner = scene.workers.start("owner")
    # It is waited for; or, with the rule broken, read around, however long that takes here.
    open_ms = 30_000 if rule_broken else TRANSACTION_TIMEOUT_MS
    stranger = scene.workers.start("stranger", transaction_timeout_ms=open_ms)
    claimant = scene.workers.start("claimant", broken=broken)
    scene.seed(owner, "s")
    scene.seed(stranger, "other")
    going = scene.hit(stranger, "sent", "stop", "append", sessions=["other"], batches=[1])
    assert scene.append(owner, "s")
    assert scene.claim(claimant, "s") == 2
    scene.go_on(stranger, going)
    verdict(scene.judge(), rule_broken=rule_broken, loses=True)


@pytest.mark.parametrize("rule_broken", [False, True])
def test_a_place_that_was_sent_is_not_used_by_another_event(
    scene: Scene, rule_broken: bool
) -> None:
    """The writer is stopped between send and commit until its transaction is aborted.

    It may not record something else as the same step of the same attempt: a reader of all records
    has seen that step already.
    """
    broken = "reuses places" if rule_broken else ""
    writer = scene.workers.start("writer", deadline_s=DEADLINE_S, broken=broken)
    scene.seed(writer, "s")
    going = scene.hit(writer, "sent", "stop", "append", sessions=["s"], batches=[1])
    stopped_at = time.monotonic()
    scene.await_aborts()
    time.sleep(max(0.0, stopped_at + 1.5 * DEADLINE_S - time.monotonic()))
    scene.go_on(writer, going)
    assert scene.append(writer, "s") == rule_broken
    if not rule_broken:
        assert scene.claim(writer, "s") == 2
        assert scene.append(writer, "s")
    verdict(scene.judge(), rule_broken=rule_broken, loses=False)


@pytest.mark.parametrize("rule_broken", [False, True])
def test_an_attempt_that_was_sent_is_not_used_by_another_claim(
    scene: Scene, rule_broken: bool
) -> None:
    """A claimant is killed between send and commit; the next claim must have a higher attempt."""
    owner, killed = scene.workers.start("owner"), scene.workers.start("killed")
    broken = "counts only what stands" if rule_broken else ""
    claimant = scene.workers.start("claimant", broken=broken)
    scene.seed(owner, "s")
    scene.hit(killed, "sent", "kill", "claim", sessions=["s"])
    assert scene.claim(claimant, "s") == (2 if rule_broken else 3)
    assert scene.append(claimant, "s")
    verdict(scene.judge(), rule_broken=rule_broken, loses=False)


@pytest.mark.parametrize("rule_broken", [False, True])
def test_an_owner_that_remembers_nothing_of_its_line_sees_a_claim_that_died(
    scene: Scene, rule_broken: bool
) -> None:
    """It claimed the session, and wrote to others since; then it is fenced by who is killed.

    Both sessions were claimed in vain under a higher attempt, which a reader of all records
    believes: the owner must claim them anew before it writes, also the one that it holds no line
    of in memory.
    """
    first, killed = scene.workers.start("first"), scene.workers.start("killed")
    broken = "believes that nobody claimed" if rule_broken else ""
    owner = scene.workers.start("owner", broken=broken)
    for session in ("held", "unheld"):
        scene.seed(first, session)
        assert scene.claim(owner, session) == 2
    assert scene.append(owner, "held")
    scene.hit(killed, "sent", "kill", "claim", sessions=["held", "unheld"])
    assert not scene.append(owner, "held")
    assert scene.append(owner, "unheld") == rule_broken
    if not rule_broken:
        assert scene.claim(owner, "unheld") == 4
        assert scene.append(owner, "unheld")
    verdict(scene.judge(), rule_broken=rule_broken, loses=False)


@pytest.mark.parametrize("rule_broken", [False, True])
def test_a_claim_is_not_sent_again_where_another_was_sent_under_its_attempt(
    scene: Scene, rule_broken: bool
) -> None:
    """Two append claims of their own, both as attempt 2; each fences the other before it is sure.

    The one that was refused may be sent again, but not where the other was seen meanwhile.
    """
    owner, killed = scene.workers.start("owner"), scene.workers.start("killed")
    broken = "sends its claim again in any case" if rule_broken else ""
    claimant = scene.workers.start("claimant", broken=broken)
    scene.seed(owner, "s")
    resume = {"session": "s", "count": 1}
    going = scene.hit(claimant, "unsent", "stop", "resume", **resume)
    scene.hit(killed, "sent", "kill", "resume", **resume)
    scene.go_on(claimant, going)
    refused = [each.facts["error"] for each in claimant.reports if each.name == "refused"]
    assert refused == ([] if rule_broken else ["FencedError"])
    if not rule_broken:
        assert scene.workers.ask(claimant, "resume", **resume)["written"]
    verdict(scene.judge(), rule_broken=rule_broken, loses=False)


def test_an_owner_whose_producer_is_new_sees_a_claim_that_died(scene: Scene) -> None:
    """It claimed the session by another's producer, so its own was never fenced: it is not there.

    Its first append initialises it, and so ends the claim of who was killed, unnoticed.
    """
    first, killed = scene.workers.start("first"), scene.workers.start("killed")
    owner = scene.workers.start("owner")
    scene.seed(first, "s")
    assert scene.claim(owner, "s") == 2
    scene.hit(killed, "sent", "kill", "claim", sessions=["s"])
    assert not scene.append(owner, "s")
    assert scene.claim(owner, "s") == 4
    assert scene.append(owner, "s")
    verdict(scene.judge(), rule_broken=False, loses=False)
