"""Reading a planned line out of any keeper's rows, each record proven by the next.

A record is given out only when its bytes have its digest, its own fields name the place it was
found at, and the record after it (or the line's head) names it as parent.
"""

from collections.abc import Iterable, Iterator, Sequence

from eventlog.errors import LinkBrokenError, StepNotFoundError
from eventlog.keeping.kept_records import CHECK_HINT, checked_record, missing_event
from eventlog.keeping.kept_rows import LineSource
from eventlog.keeping.line_plan import LinePart, LinePlan
from eventlog.log import LogRecord


def read_plan(
    source: LineSource, plan: LinePlan, start_step: int, end_step: int | None
) -> Iterator[LogRecord]:
    """Records of steps [start_step, end_step) of a planned chain.

    Bounds are checked at once (`StepNotFoundError`), rows as they are read (`IntegrityError`).
    """
    end = plan.end_step if end_step is None else end_step
    if not 0 <= start_step <= end or end > plan.end_step:
        asked = end - 1 if end > plan.end_step else start_step
        raise StepNotFoundError(
            f"there is no step {asked}: the session's steps are 0 to {plan.end_step - 1}",
            hint="ask for one of these",
            session_id=plan.session_id,
            step=asked,
        )
    return _proven(source, plan, start_step, end)


def read_parts(source: LineSource, parts: Sequence[LinePart]) -> Iterator[LogRecord]:
    """All records of these parts, linked to each other; what comes after them is not looked at."""
    return _linked(source, parts)


def _proven(source: LineSource, plan: LinePlan, start: int, end: int) -> Iterator[LogRecord]:
    if start == end:
        return
    # One record more is read than is given out: it names the last one as its parent.
    look_end = min(end + 1, plan.end_step)
    parts = [
        part._replace(first_step=low, end_step=high)
        for part in plan.parts
        if (low := max(part.first_step, start)) < (high := min(part.end_step, look_end))
    ]
    # Parts that do not reach back to the asked step would leave a gap at the front.
    if not parts or parts[0].first_step != start:
        raise missing_event(plan.session_id, start)
    held: LogRecord | None = None
    for record in _linked(source, parts):
        if held is not None:
            yield held
        held = record
    assert held is not None
    if look_end == end:
        if held.digest != plan.end_digest:
            raise LinkBrokenError(
                "the line's last event is not the one its head names",
                hint=CHECK_HINT,
                session_id=plan.session_id,
                step=held.prefix.step,
            )
        yield held


def _linked(source: LineSource, parts: Iterable[LinePart]) -> Iterator[LogRecord]:
    """Every record of the parts, each checked against the one before it."""
    parent: bytes | None = None
    for part in parts:
        step = part.first_step
        for stored in source.events_between(
            part.number, part.attempt, part.first_step, part.end_step
        ):
            record = checked_record(stored, part.session_id)
            if stored.step != step or stored.attempt != part.attempt:
                raise missing_event(part.session_id, step)
            if parent is not None and record.prefix.parent != parent:
                raise LinkBrokenError(
                    f"the event (offset {stored.offset}) does not stand on the event before it",
                    hint=CHECK_HINT,
                    session_id=part.session_id,
                    step=step,
                )
            yield record
            parent = record.digest
            step += 1
        if step != part.end_step:
            raise missing_event(part.session_id, step)
