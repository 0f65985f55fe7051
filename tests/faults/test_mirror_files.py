"""Damage to the file of a mirror: never another state, and never one silently.

Each fault is seeded. A damaged copy answers every question as the whole one did, or refuses it as
damage; then it reads the topic on, and again every answer is the one of a whole mirror, or refused.
"""

import random
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from eventlog.cut import Cut
from eventlog.errors import SessionNotFoundError, SteplogError
from eventlog.kafka.partitioning import partition_of
from eventlog.log import Finding
from eventlog.mirror import Mirror
from eventlog.sqlite.schema import PAGE_BYTES
from tests.support.mirror_truth import read_line
from tests.support.scale import scaled
from tests.support.topic import FakeTopic
from tests.support.topic_histories import TopicHistory

FLIPS = scaled(30, 900)
CUTS = scaled(8, 120)
CHANGES_MADE = scaled(21, 400)
DAMAGED_EXIT_CODE = 4

Question = Callable[[Mirror], object]


class Whole(NamedTuple):
    """A whole mirror, closed, of a topic that went on since; right answers then, and at its end.

    `findings` is what the check says of it at its end: records that are no events, and the like.
    """

    path: Path
    topic: FakeTopic
    then: dict[str, object]
    later: dict[str, object]
    findings: list[Finding]


def questions_of(names: list[str], partitions: int) -> dict[str, Question]:
    """Every question that readers and writers ask of a mirror."""
    questions: dict[str, Question] = {
        "cut": lambda mirror: mirror.cut(),
        "tail": lambda mirror: [
            (each.partition, each.offset, each.data)
            for each in mirror.tail(Cut.empty(), mirror.cut())
        ],
        "middle": lambda mirror: [
            (each.partition, each.offset, each.data)
            for each in mirror.tail(Cut({0: 40, 1: 7}), Cut({0: 90, 1: 60}))
        ],
        "list": lambda mirror: list(mirror.reader.list_sessions(None)),
        "headless": lambda mirror: mirror.reader.headless(),
        "places": lambda mirror: [mirror.place_of(local) for local in range(20)],
        "last": lambda mirror: [mirror.reader.last_record(part) for part in range(partitions)],
    }
    for name in names:
        questions |= _questions_about(name)
    return questions


def _questions_about(name: str) -> dict[str, Question]:
    return {
        f"line of {name}": lambda mirror: read_or_refusal(mirror, name),
        f"records of {name}": lambda mirror: [
            (each.partition, each.offset, each.data) for each in mirror.session_records(name)
        ],
        f"aborted of {name}": lambda mirror: mirror.reader.aborted(name, partition_of(name, 2)),
        f"state of {name}": lambda mirror: mirror.reader.find_line(name),
    }


def read_or_refusal(mirror: Mirror, name: str) -> object:
    """The line, or why it cannot be read: a branch without its parent, a session without a head."""
    try:
        return [(each.partition, each.offset, each.data) for each in read_line(mirror, name)]
    except SteplogError as error:
        if error.exit_code != DAMAGED_EXIT_CODE:
            return error.message
        if "is not in this log" in error.message or "head missing" in error.message:
            return error.message
        raise


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    rng = random.Random(3)
    topic = FakeTopic(2)
    history = TopicHistory(rng, topic, 14)
    folder = tmp_path_factory.mktemp("whole")
    names = [*history.names, "another", "nobody"]
    questions = questions_of(names, 2)
    while sum(map(len, topic.parts)) < 450:
        history.write_some(10)
    for transaction, _ in history._open:
        transaction.end("committed")
    history._open.clear()
    with Mirror(folder, topic.client()) as mirror:
        mirror.refresh()
        for name in names:
            mirror.highest_attempt(name, topic.part_of(name))
        then = answers(mirror, questions)
    history.finish()
    later_folder = folder / "later"
    shutil.copytree(folder, later_folder, ignore=shutil.ignore_patterns("later"))
    with Mirror(later_folder, topic.client()) as mirror:
        mirror.refresh()
        for name in names:
            mirror.highest_attempt(name, topic.part_of(name))
        later = answers(mirror, questions)
        findings = list(mirror.find_damage())
    assert not any(isinstance(each, SteplogError) for each in (*then.values(), *later.values()))
    return Whole(folder / "mirror.db", topic, then, later, findings)


def answers(mirror: Mirror, questions: dict[str, Question]) -> dict[str, object]:
    """The answer to each question; an error is one too."""
    found: dict[str, object] = {}
    for name, ask in questions.items():
        try:
            found[name] = ask(mirror)
        except SessionNotFoundError:
            found[name] = "not found"
        except SteplogError as error:
            found[name] = error
    return found


class Outcome(NamedTuple):
    """What a damaged copy did: refusals by class, and what was wrong."""

    refused: Counter[str]
    wrong: list[str]
    noticed: bool


def judge_copy(path: Path, whole: Whole) -> Outcome:
    """Ask a damaged copy everything, let it read on, ask again, and check it."""
    refused: Counter[str] = Counter()
    wrong: list[str] = []
    questions = questions_of([*whole_names(whole), "nobody"], 2)

    def refuse(what: str, error: SteplogError) -> None:
        refused[type(error).__name__] += 1
        if error.exit_code != DAMAGED_EXIT_CODE:
            wrong.append(f"{what}: {error!r}")

    def compare(when: str, right: dict[str, object]) -> None:
        for name, found in answers(mirror, questions).items():
            if isinstance(found, SteplogError):
                refuse(f"{when}, {name}", found)
            elif found != right[name]:
                wrong.append(f"{when}, {name}")

    try:
        mirror = Mirror(path.parent, whole.topic.client())
    except SteplogError as error:
        refuse("opening", error)
        return Outcome(refused, wrong, noticed=True)
    with mirror:
        compare("then", whole.then)
        try:
            mirror.refresh()
            for name in whole_names(whole):
                mirror.highest_attempt(name, whole.topic.part_of(name))
        except SteplogError as error:
            refuse("refresh", error)
        else:
            compare("later", whole.later)
        found = set(mirror.find_damage()) - set(whole.findings)
        if refused and not found:
            wrong.append(f"the check found nothing, but {refused} were met")
    return Outcome(refused, wrong, noticed=bool(refused or found))


def whole_names(whole: Whole) -> list[str]:
    """The sessions that are asked about."""
    return [name.removeprefix("line of ") for name in whole.then if name.startswith("line of ")]


def copy_of(whole: Whole, folder: Path) -> Path:
    """A copy of the whole mirror's file."""
    shutil.rmtree(folder / "copy", ignore_errors=True)
    (folder / "copy").mkdir()
    return Path(shutil.copy(whole.path, folder / "copy" / "mirror.db"))


def report(faults: str, outcomes: list[Outcome]) -> None:
    """Print what was met, and fail on any wrong answer."""
    wrong = [line for outcome in outcomes for line in outcome.wrong]
    refused = sum((outcome.refused for outcome in outcomes), Counter())
    noticed = sum(outcome.noticed for outcome in outcomes)
    print(f"{len(outcomes)} {faults}: {noticed} noticed, refusals {dict(refused)}")
    assert not wrong, "\n".join(wrong[:20])


def test_an_undamaged_copy_answers_rightly(whole: Whole, tmp_path: Path) -> None:
    outcome = judge_copy(copy_of(whole, tmp_path), whole)
    assert not outcome.wrong
    assert not outcome.refused


def test_a_flipped_bit_anywhere(whole: Whole, tmp_path: Path) -> None:
    rng = random.Random(21)
    outcomes = []
    for _ in range(FLIPS):
        path = copy_of(whole, tmp_path)
        size = path.stat().st_size
        page = rng.randrange(size // PAGE_BYTES) * PAGE_BYTES
        place = rng.choice(
            (rng.randrange(size), page + rng.randrange(16), page + rng.randrange(300))
        )
        bit = rng.randrange(8)
        with path.open("rb+") as file:
            file.seek(place)
            (byte,) = file.read(1)
            file.seek(place)
            file.write(bytes([byte ^ 1 << bit]))
        outcome = judge_copy(path, whole)
        named = [f"bit {bit} of byte {place}: {each}" for each in outcome.wrong]
        outcomes.append(outcome._replace(wrong=named))
    report("flipped bits", outcomes)


def test_a_file_cut_anywhere(whole: Whole, tmp_path: Path) -> None:
    rng = random.Random(22)
    outcomes = []
    for number in range(CUTS):
        path = copy_of(whole, tmp_path)
        size = path.stat().st_size
        pages = rng.randrange(size // PAGE_BYTES) * PAGE_BYTES
        with path.open("rb+") as file:
            file.truncate(rng.randrange(size) if number % 2 else pages)
        outcomes.append(judge_copy(path, whole))
    report("cut files", outcomes)


PICK = " LIMIT 1 OFFSET (SELECT count(*) FROM {0}) * ? / 1000)"
ROW = "DELETE FROM {0} WHERE rowid=(SELECT rowid FROM {0}" + PICK
CHANGES = {
    "a span": ROW.format("spans"),
    "last span": "DELETE FROM spans WHERE first=(SELECT max(first) FROM spans)",
    "an event": ROW.format("events"),
    "a head": ROW.format("head"),
    "last head": "DELETE FROM head WHERE number=(SELECT max(number) FROM head)",
    "a claim": (
        "DELETE FROM claims WHERE (session, attempt)=(SELECT session, attempt FROM claims"
        + PICK.format("claims")
    ),
    "a skipped record": (
        "DELETE FROM skipped WHERE (part, offset)=(SELECT part, offset FROM skipped"
        + PICK.format("skipped")
    ),
    "a verdict": (
        "UPDATE skipped SET verdict=verdict||'d' WHERE (part, offset)=(SELECT part, offset FROM "
        "skipped" + PICK.format("skipped")
    ),
    "skipped bytes": (
        "UPDATE skipped SET data=zeroblob(40) WHERE (part, offset)=(SELECT part, offset FROM "
        "skipped WHERE session NOT NULL LIMIT 1)"
    ),
    "an aborted record": (
        "DELETE FROM aborted WHERE (part, offset)=(SELECT part, offset FROM aborted"
        + PICK.format("aborted")
    ),
    "an attempt": "UPDATE aborted SET attempt=attempt+1",
    "a session without a head": (
        "DELETE FROM headless WHERE session=(SELECT session FROM headless LIMIT 1)"
    ),
    "a position": "UPDATE positions SET next=next+1 WHERE part=1",
    "a position's row": "DELETE FROM positions WHERE part=1",
    "all positions": "DELETE FROM positions",
    "source": "DELETE FROM source",
    "topic": "UPDATE source SET topic='another'",
    "an orphan": "DELETE FROM orphans WHERE session=(SELECT session FROM orphans LIMIT 1)",
    "log's end": "DELETE FROM log_end",
    "span's place": "UPDATE spans SET offset=offset+1 WHERE first=0",
    "summary": "UPDATE head SET summary=(SELECT summary FROM head WHERE number=1)",
}
"""Statements by hand; `?` is a number below 1,000 that picks a row."""


def test_rows_deleted_or_changed_by_hand(whole: Whole, tmp_path: Path) -> None:
    rng = random.Random(23)
    outcomes = []
    for number in range(CHANGES_MADE):
        path = copy_of(whole, tmp_path)
        kind = list(CHANGES)[number % len(CHANGES)]
        db = sqlite3.connect(path, isolation_level=None)
        values = (rng.randrange(1_000),) if "?" in CHANGES[kind] else ()
        changed = db.execute(CHANGES[kind], values).rowcount
        db.close()
        assert changed > 0, kind
        outcome = judge_copy(path, whole)
        assert outcome.noticed, f"{kind}: not noticed"
        outcomes.append(outcome._replace(wrong=[f"{kind}: {each}" for each in outcome.wrong]))
    report("rows changed by hand", outcomes)
