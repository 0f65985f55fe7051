"""What a log answered while it was whole, and whether a damaged copy ever answers otherwise."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from eventlog.content import OCTET_STREAM, BlobRef, Content
from eventlog.cut import Cut
from eventlog.errors import SteplogError
from eventlog.event import LineHead
from eventlog.log import EventLog, SessionInfo
from eventlog.sqlite_log import SqliteLog
from tests.support.events import EventChain
from tests.support.recorded import append_all, data_of, seeded_chain

Answer = object
Question = Callable[[EventLog], Answer]

DAMAGED_EXIT_CODE = 4


class Answers(NamedTuple):
    """The right answer to each question, by the question's name."""

    questions: dict[str, Question]
    right: dict[str, Answer]


def write_history(log: EventLog) -> None:
    """Sessions of every sort: long, rewound, branched, closed, released, with blobs and rewards."""
    long = seeded_chain(log, "long", calls=600)
    append_all(log, [long.verified(0.5)])
    for number in range(24):
        chain = seeded_chain(log, f"short/{number:02}", calls=number % 7)
        append_all(log, [chain.verified(number / 10)])
        if number % 3 == 0:
            append_all(log, [chain.closed()])
        elif number % 3 == 1:
            log.release(chain.session_id)
    rewound = seeded_chain(log, "rewound", calls=20)
    for step in (30, 12, 25, 8):
        base = rewound.events[step]
        claim = rewound.resumed(
            LineHead("rewound", step, base.event.attempt, base.digest), writer=log.writer_id
        )
        append_all(log, [claim, *(rewound.call() for _ in range(30))])
    blob = Content(OCTET_STREAM, BlobRef(bytes(range(32)), 300_000))
    append_all(log, [rewound.call(arguments=blob)])
    for number, step in enumerate((3, 200, 1_000)):
        base = long.events[step]
        branch = EventChain(f"branch/{number}", seed=number + 1)
        head = LineHead("long", step, 1, base.digest)
        append_all(log, [branch.forked(head, writer=log.writer_id)])
        append_all(log, [branch.call() for _ in range(5)])
    large = seeded_chain(log, "large", calls=0)
    bodies = [Content(OCTET_STREAM, bytes([number]) * 90_000) for number in (1, 2, 3)]
    append_all(log, [large.call(arguments=body) for body in bodies])
    log.commit_cut("follower", Cut({0: 17}))


def ask_everything(log: EventLog) -> Answers:
    """Every question that readers ask, with its right answer."""
    questions: dict[str, Question] = {
        "tail": lambda log: [
            (record.offset, record.data) for record in log.tail_events(Cut({0: 500}))
        ],
        "end": lambda log: log.end_cut(),
        "cursor": lambda log: log.committed_cut("follower"),
        "list": lambda log: list(log.list_sessions()),
    }
    for info in log.list_sessions():
        questions |= dict(_questions_of(info))
    return Answers(questions, {name: ask(log) for name, ask in questions.items()})


def _questions_of(info: SessionInfo) -> Iterator[tuple[str, Question]]:
    name, count = info.session_id, info.step_count
    yield f"line of {name}", lambda log: data_of(log.read_session(name))
    yield f"records of {name}", lambda log: data_of(log.read_records(name))
    yield f"info of {name}", lambda log: log.session_info(name)
    for start in range(0, count, max(1, count // 3)):
        end = min(count, start + 2)
        yield (
            f"steps {start}, {end} of {name}",
            lambda log, start=start, end=end: data_of(log.read_session(name, start, end)),  # type: ignore[misc]
        )


class Outcome(NamedTuple):
    """What a damaged copy did: how many answers were right, refused, and what was wrong."""

    right: int
    refused: dict[str, int]
    wrong: list[str]
    found: int


def judge_copy(path: Path, truth: Answers) -> Outcome:
    """Ask the log at `path` everything; an answer is right, refused as damage, or wrong."""
    refused: dict[str, int] = {}
    wrong: list[str] = []
    right = 0

    def refuse(what: str, error: SteplogError) -> None:
        refused[type(error).__name__] = refused.get(type(error).__name__, 0) + 1
        if error.exit_code != DAMAGED_EXIT_CODE:
            wrong.append(f"{what}: {error!r}")

    try:
        log = SqliteLog(path)
    except SteplogError as error:
        refuse("opening", error)
        return Outcome(right, refused, wrong, 0)
    with log:
        for name, ask in truth.questions.items():
            try:
                answer = ask(log)
            except SteplogError as error:
                refuse(name, error)
                continue
            if answer == truth.right[name]:
                right += 1
            else:
                wrong.append(name)
        found = len(list(log.find_damage()))
        if refused and not found:
            wrong.append(f"the check found nothing, but {refused} were met")
        wrong += _append_to(log, truth)
    return Outcome(right, refused, wrong, found)


def _append_to(log: EventLog, truth: Answers) -> list[str]:
    """An append to a damaged log is refused, or what it leaves is right."""
    for name in ("long", "rewound", "branch/1"):
        info = next(i for i in truth.right["list"] if i.session_id == name)  # type: ignore[attr-defined]
        line = truth.right[f"line of {name}"]
        try:
            log.take_over([name], stands_on={name: info.head.digest}, reason="test")
            chain = EventChain(name, seed=77)
            chain.head = log.session_info(name).head
            append_all(log, [chain.call(), chain.returned()])
            found = data_of(log.read_session(name))
        except SteplogError as error:
            if error.exit_code != DAMAGED_EXIT_CODE:
                return [f"append to {name}: {error!r}"]
            continue
        if found[: info.step_count] != line or len(found) != info.step_count + 3:
            return [f"after an append: line of {name}"]
    return []


def copy_log(source: Path, folder: Path) -> Path:
    """The files of the log at `source`, copied into `folder` as they are."""
    folder.mkdir(parents=True, exist_ok=True)
    for suffix in ("", "-wal", ".lock"):
        part = source.with_name(source.name + suffix)
        target = folder / part.name
        target.unlink(missing_ok=True)
        if part.exists():
            shutil.copyfile(part, target)
    (folder / f"{source.name}-shm").unlink(missing_ok=True)
    return folder / source.name
