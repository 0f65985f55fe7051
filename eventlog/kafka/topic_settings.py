"""The settings that a topic of events needs, and what is wrong with those that it has.

Topics are made with these and judged by them, so that both always agree. Kafka's defaults are made
for traffic, not for a record that is kept: it drops events after seven days, answers before a
second server has them, and lets a server that lacks some of them become the leader.
"""

from collections.abc import Callable, Iterator, Mapping
from shlex import quote
from typing import Final, Literal, NamedTuple

from eventlog.kafka.codecs import missing_package

PARTITIONS_DEFAULT: Final = 64
"""Fixed for the life of a topic, since a session's partition follows from their number: so rather
more than fewer. Each is a unit of order, of reading and of sealing at once. But a transaction pays
for each that it touches: one of 500 events took 10 ms over 16 partitions, 15 ms over 64, 28 ms over
128 (one server, two cores); one of a single event takes 2 ms whatever their number."""

PARTITIONS_MAX: Final = 4096
"""A topic of more is no use to a log, and a danger to a small cluster."""

REPLICAS_DEFAULT: Final = 3
REPLICAS_ACKNOWLEDGED: Final = 2
"""Where there are three copies, an event is acknowledged once two servers have it: so one of them
may be lost for good, and one may be away, without an event lost or a writer held up."""

BATCH_BYTES_MIN: Final = 768 * 1024
"""What a writer puts into one batch (512 KiB), and one event of the largest kind (320 KiB), each
fit into a batch of this size."""

BATCH_BYTES_MADE: Final = 1024 * 1024 + 12
"""What topics are made with: Kafka's own default, stated so that a server's other one is not it."""

FOR_EVER: Final = "-1"
LONG_MAX: Final = 2**63 - 1
PAST_MS_MIN: Final = 100 * 365 * 86_400_000
"""Imported traces have times of long ago, and where they have none the year 1970."""
AHEAD_MS_MIN: Final = 86_400_000
"""A writer's clock may be wrong by hours."""

TRANSACTION_MS: Final = 10_000
"""How long a writer lets one of its transactions stay open."""
OFFSETS_MINUTES_MIN: Final = 7 * 24 * 60

ANY_SERVER: Final = "HOST:PORT"
"""Stands in a fix where the servers' addresses are not known."""

Verdict = Literal["ok", "warning", "failed"]


class TopicFinding(NamedTuple):
    """One thing that was looked at: what was found, what is wanted, and the fix where it is not."""

    name: str
    verdict: Verdict
    found: str
    wanted: str = ""
    fix: str = ""


class TopicWishes(NamedTuple):
    """What a user asks of a topic; None where nothing was said."""

    partition_count: int | None = None
    replication_factor: int | None = None
    settings: Mapping[str, str] | None = None


class TopicPlan(NamedTuple):
    """How a topic is to be made."""

    partition_count: int
    replication_factor: int
    settings: Mapping[str, str]


def plan_topic(
    broker_count: int,
    *,
    partitions: int = PARTITIONS_DEFAULT,
    replication_factor: int | None = None,
    settings: Mapping[str, str] | None = None,
) -> TopicPlan:
    """How a topic of events is made on so many servers; `settings` go before ours."""
    copies = replication_factor or max(1, min(REPLICAS_DEFAULT, broker_count))
    made = {
        "cleanup.policy": "delete",
        "retention.ms": FOR_EVER,
        "retention.bytes": FOR_EVER,
        "max.message.bytes": str(BATCH_BYTES_MADE),
        "message.timestamp.type": "CreateTime",
        "message.timestamp.before.max.ms": str(LONG_MAX),
        "message.timestamp.after.max.ms": str(LONG_MAX),
        "min.insync.replicas": _in_sync_for(copies),
        "unclean.leader.election.enable": "false",
    }
    return TopicPlan(partitions, copies, {**made, **(settings or {})})


def plan_schema_topic(replication_factor: int) -> TopicPlan:
    """How the schema topic beside it is made: one partition, the last text of each schema kept."""
    settings = {
        "cleanup.policy": "compact",
        "retention.ms": FOR_EVER,
        "retention.bytes": FOR_EVER,
        "min.insync.replicas": _in_sync_for(replication_factor),
        "unclean.leader.election.enable": "false",
    }
    return TopicPlan(1, replication_factor, settings)


def _in_sync_for(copies: int) -> str:
    return str(REPLICAS_ACKNOWLEDGED if copies >= REPLICAS_DEFAULT else 1)


def judge_topic(
    topic: str,
    partition_count: int,
    copies: int,
    settings: Mapping[str, str],
    *,
    bootstrap: str = ANY_SERVER,
) -> Iterator[TopicFinding]:
    """What is right and wrong about a topic of events. `bootstrap`: the servers, for the fixes."""
    yield _judge_partitions(partition_count)
    yield _judge_copies(copies, settings)
    for rule in _RULES:
        yield rule.judge(topic, settings, bootstrap)
    codec = settings.get("compression.type", "")
    package = missing_package(codec)
    if package is not None:
        yield TopicFinding(
            "compression.type",
            "failed",
            codec,
            "producer",
            f"no event can be read without the package {package}, which is not here: install it "
            "on every machine that reads, and "
            + alter_command(topic, "compression.type", "producer", bootstrap),
        )


def judge_wishes(
    topic: str, wanted: TopicWishes, found: TopicPlan, *, bootstrap: str = ANY_SERVER
) -> Iterator[TopicFinding]:
    """What was asked of a topic that is there already, and is not so: each with what changes it."""
    if wanted.partition_count not in (None, found.partition_count):
        yield TopicFinding(
            "partitions",
            "failed",
            str(found.partition_count),
            str(wanted.partition_count),
            "the number stays for the life of a topic: make another topic",
        )
    if wanted.replication_factor not in (None, found.replication_factor):
        yield TopicFinding(
            "copies",
            "failed",
            str(found.replication_factor),
            str(wanted.replication_factor),
            f"kafka-reassign-partitions.sh --bootstrap-server {bootstrap} gives each partition of "
            f"{topic} other servers; or make another topic",
        )
    for setting, value in (wanted.settings or {}).items():
        there = found.settings.get(setting)
        if there is None or there.lower() != value.lower():
            yield TopicFinding(
                setting,
                "failed",
                "not shown, or no such setting" if there is None else there,
                value,
                alter_command(topic, setting, value, bootstrap),
            )


def judge_servers(settings: Mapping[str, str], broker_count: int) -> Iterator[TopicFinding]:
    """What is right and wrong about the servers' own settings."""
    if broker_count > 1:
        yield TopicFinding("servers", "ok", f"{broker_count} up")
    else:
        yield TopicFinding(
            "servers", "warning", "1 up", "3", "a second and third server: this one holds all"
        )
    for rule in _SERVER_RULES:
        yield rule.judge("", settings)
    yield _judge_transaction_log(settings, broker_count)


class _Rule(NamedTuple):
    """What one setting must say, how bad it is where it does not, and why."""

    setting: str
    fits: Callable[[str], bool]
    wanted: str
    otherwise: Verdict
    why: str
    fix: str = ""

    def judge(
        self, topic: str, settings: Mapping[str, str], bootstrap: str = ANY_SERVER
    ) -> TopicFinding:
        """The finding on this setting. The fix of a topic's setting is a command line."""
        value = settings.get(self.setting)
        if value is None:
            return TopicFinding(
                self.setting,
                "warning",
                "not shown to this user",
                self.wanted,
                "allow DescribeConfigs, or ask who may see it",
            )
        if self.fits(value):
            return TopicFinding(self.setting, "ok", value)
        wanted = self.wanted.split(" ", 1)[0]
        fix = self.fix or alter_command(topic, self.setting, wanted, bootstrap)
        return TopicFinding(self.setting, self.otherwise, value, self.wanted, f"{self.why}: {fix}")


def alter_command(topic: str, setting: str, value: str, bootstrap: str = ANY_SERVER) -> str:
    """The command of Kafka's that gives a topic this setting."""
    # A list is bracketed, as Kafka's tool wants it; quoted, as the shell does.
    change = f"{setting}=[{value}]" if "," in value else f"{setting}={value}"
    return (
        f"kafka-configs.sh --bootstrap-server {bootstrap} --entity-type topics --entity-name "
        f"{topic} --alter --add-config {quote(change)}"
    )


def _at_least(least: int) -> Callable[[str], bool]:
    def fits(value: str) -> bool:
        number = _number(value)
        return number is not None and number >= least

    return fits


def _is(*values: str) -> Callable[[str], bool]:
    return lambda value: value.strip().lower() in values


_RULES: Final = (
    _Rule("retention.ms", _is(FOR_EVER), "-1", "failed", "events are deleted after this time"),
    _Rule("retention.bytes", _is(FOR_EVER), "-1", "failed", "events over this size are deleted"),
    _Rule(
        "cleanup.policy", _is("delete"), "delete", "failed", "compaction removes a session's events"
    ),
    _Rule(
        "max.message.bytes",
        _at_least(BATCH_BYTES_MIN),
        f"{BATCH_BYTES_MADE} (at least {BATCH_BYTES_MIN})",
        "failed",
        "large appends are refused",
    ),
    _Rule(
        "message.timestamp.type",
        _is("createtime"),
        "CreateTime",
        "warning",
        "records have the time of their arrival, not the event's",
    ),
    _Rule(
        "message.timestamp.before.max.ms",
        _at_least(PAST_MS_MIN),
        str(LONG_MAX),
        "failed",
        "imported events of long ago are refused",
    ),
    _Rule(
        "message.timestamp.after.max.ms",
        _at_least(AHEAD_MS_MIN),
        str(LONG_MAX),
        "warning",
        "a writer whose clock is ahead by more is refused",
    ),
    _Rule(
        "unclean.leader.election.enable",
        _is("false"),
        "false",
        "failed",
        "a server that lacks acknowledged events may become the leader",
    ),
)

_SERVER_RULES: Final = (
    _Rule(
        "auto.create.topics.enable",
        _is("false"),
        "false",
        "warning",
        "a topic's name that is mistyped becomes a topic that forgets",
        "set it in the servers' own properties",
    ),
    _Rule(
        "transaction.max.timeout.ms",
        _at_least(TRANSACTION_MS),
        f"at least {TRANSACTION_MS}",
        "failed",
        "no writer can open a transaction",
        "set it in the servers' own properties",
    ),
    _Rule(
        "offsets.retention.minutes",
        _at_least(OFFSETS_MINUTES_MIN),
        f"at least {OFFSETS_MINUTES_MIN}",
        "warning",
        "a consumer that rests for so long begins anew",
        "set it in the servers' own properties",
    ),
)


def _judge_partitions(count: int) -> TopicFinding:
    if 1 < count <= PARTITIONS_MAX:
        return TopicFinding("partitions", "ok", str(count))
    why = "all sessions wait for one another" if count == 1 else "each reader asks for all of them"
    return TopicFinding(
        "partitions",
        "warning",
        str(count),
        str(PARTITIONS_DEFAULT),
        f"{why}; the number stays for the life of a topic: make another topic",
    )


def _judge_copies(copies: int, settings: Mapping[str, str]) -> TopicFinding:
    """Copies and how many of them acknowledge belong together."""
    in_sync = _number(settings.get("min.insync.replicas", ""))
    counted = "1 copy" if copies == 1 else f"{copies} copies"
    found = f"{counted}, min.insync.replicas {'unknown' if in_sync is None else in_sync}"
    wanted = f"{REPLICAS_DEFAULT} copies, min.insync.replicas {REPLICAS_ACKNOWLEDGED}"
    verdict: Verdict = "ok"
    fix = ""
    if in_sync is None:
        verdict, fix = "warning", "allow DescribeConfigs, or ask who may see it"
    elif in_sync > copies:
        verdict, fix = "failed", "no append can be acknowledged: lower min.insync.replicas"
    elif copies == 1:
        verdict = "warning"
        fix = "one server's loss is the log's loss: make the topic anew on three servers"
        if settings.get("flush.messages") != "1":
            fix += "; on one, flush.messages=1 keeps acknowledged events through a power cut"
    elif in_sync < REPLICAS_ACKNOWLEDGED:
        verdict = "failed" if copies >= REPLICAS_DEFAULT else "warning"
        fix = "acknowledged events may be on one server only: set min.insync.replicas to 2"
    elif in_sync == copies:
        verdict, fix = "warning", "one server that is away stops every append: add a copy"
    return TopicFinding("copies", verdict, found, "" if verdict == "ok" else wanted, fix)


def _judge_transaction_log(settings: Mapping[str, str], broker_count: int) -> TopicFinding:
    name = "transaction.state.log.replication.factor"
    copies = _number(settings.get(name, ""))
    wanted = min(REPLICAS_DEFAULT, broker_count)
    if copies is None:
        return TopicFinding(name, "warning", "not shown to this user", str(wanted))
    if copies >= wanted:
        return TopicFinding(name, "ok", str(copies))
    return TopicFinding(
        name,
        "warning",
        str(copies),
        str(wanted),
        "the loss of one server stops the writers: reassign __transaction_state to more servers",
    )


def _number(value: str) -> int | None:
    try:
        return int(value)
    except ValueError:
        return None
