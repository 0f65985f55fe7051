"""Short stories of the reader's rule as text: the records of one session, and what each comes to.

    What: ...
    Why: ...

    name kind            step attempt parent more             | verdict, rule
    s0   session_seeded     0       1 -      writer=w1        | accepted 1

    line: s0
    state: next=1 attempt=1 writer=w1 open
    counts: -

`more` is what the body holds and the rule reads. A name used again is the same record again;
`restart` in place of a record drops the line and goes on from its stored state; `-` is no parent; a
parent that is no record's name is an event that the log does not hold.
"""

import hashlib
from typing import Final

from eventlog.content import TEXT_PLAIN, Content
from eventlog.event import (
    BODY_OF_KIND,
    NO_PARENT,
    Annotated,
    Body,
    MessageAdded,
    SessionClosed,
    SessionForked,
    SessionLost,
    SessionReleased,
    SessionResumed,
    SessionSeeded,
    StateChanged,
    SubjectErased,
    ToolCalled,
    ToolReturned,
    Verified,
)
from eventlog.line_state import LineState, Verdict
from tests.support.line_model import LineModel
from tests.support.line_records import LineKeeper, Record, record_of

HEADING: Final = ("name", "kind", "step", "attempt", "parent", "more", "| verdict, rule")
_TEXT: Final = Content(TEXT_PLAIN, b"")
_PLAIN_BODIES: Final[dict[str, Body]] = {
    "tool_called": ToolCalled("lookup", _TEXT),
    "tool_returned": ToolReturned(0, "ok"),
    "message_added": MessageAdded("user", _TEXT),
    "state_changed": StateChanged("test"),
    "verified": Verified("rules"),
    "annotated": Annotated("note", _TEXT),
    "subject_erased": SubjectErased("someone", "asked"),
}


class Story:
    """One story's text, read: its head, and its rows before the bar."""

    def __init__(self, text: str) -> None:
        head, table, _ = text.split("\n\n", 2)
        self.head = head
        self.rows = [line.split("|")[0].split() for line in table.splitlines()[1:]]
        self.names: dict[bytes, str] = {}
        self.records: dict[str, Record] = {}
        for row in self.rows:
            if row != ["restart"]:
                self._define(row[0])

    def told(self) -> str:
        """The whole story as it comes out now. The model must say the same of every record."""
        keeper, model = LineKeeper(), LineModel("s")
        rows = []
        told: set[str] = set()
        for row in self.rows:
            if row == ["restart"]:
                keeper.restart()
                rows.append(("restart", "", "", "", "", "", "|"))
                continue
            record = self.records[row[0]]
            verdict = keeper.accept(record)
            judged = model.judge(record)
            error = None if verdict.error is None else verdict.error.name
            assert (verdict.kind, verdict.rule, error) == judged[1:], f"the model differs: {judged}"
            facts = (row[0], "(again)", "", "", "") if row[0] in told else tuple(row[:5])
            more = "" if row[0] in told else " ".join(row[5:])
            rows.append((*facts, more, _outcome(verdict)))
            told.add(row[0])
        line = [self.names[record.digest] for record in keeper.standing()]
        assert [self.names[record.digest] for record in model.standing()] == line
        return "\n\n".join((self.head, _table(rows), _ending(line, keeper.line.state)))

    def _define(self, name: str) -> bytes:
        """Make the record of `name` from its row, its parent's first; the digest of either."""
        if name not in self.records:
            found = next((row for row in self.rows if row[0] == name and len(row) > 2), None)
            if found is None:
                return NO_PARENT if name == "-" else hashlib.sha256(name.encode()).digest()
            _, kind, step, attempt, parent, *more = found
            facts = dict(item.partition("=")[::2] for item in more)
            record = record_of(
                _body(kind, facts),
                step=int(step),
                attempt=int(attempt),
                parent=self._define(parent),
                session_id=facts.get("session", "s"),
                nonce=int.from_bytes(name.encode()),
            )
            self.records[name] = record
            self.names[record.digest] = name
        return self.records[name].digest


def _outcome(verdict: Verdict) -> str:
    text = f"| {verdict.kind} {verdict.rule}"
    if verdict.error is not None and verdict.rule != 5:
        text += f" {verdict.error}"
    return text + (", after close" if verdict.after_close else "")


def _body(kind: str, facts: dict[str, str]) -> Body:
    """The body of a row; every fact given must be used."""
    facts = {name: fact for name, fact in facts.items() if name != "session"}
    body: Body
    if kind == "session_seeded":
        body = SessionSeeded("desk", writer=facts.pop("writer", None))
    elif kind == "session_forked":
        parent_session, _, parent_step = facts.pop("from").partition("@")
        body = SessionForked(parent_session, int(parent_step), facts.pop("writer", None))
    elif kind == "session_resumed":
        over_release = facts.pop("over_release", None) is not None
        body = SessionResumed(int(facts.pop("from")), "", facts.pop("writer", None), over_release)
    elif kind == "session_released":
        body = SessionReleased(facts.pop("to", None))
    elif kind == "session_closed":
        body = SessionClosed(facts.pop("reason"), 0, NO_PARENT)
    elif kind == "session_lost":
        body = SessionLost(facts.pop("reason"))
    else:
        body = _PLAIN_BODIES[kind]
    assert not facts
    assert isinstance(body, BODY_OF_KIND[kind])
    return body


def _table(rows: list[tuple[str, ...]]) -> str:
    table = [HEADING, *rows]
    widths = [max(len(row[i]) for row in table) for i in range(len(HEADING) - 1)]
    lines = []
    for row in table:
        cells = []
        for i, cell in enumerate(row[:-1]):
            cells.append(cell.rjust(widths[i]) if i in (2, 3) else cell.ljust(widths[i]))
        lines.append("  ".join((*cells, row[-1])).rstrip())
    return "\n".join(lines)


def _ending(line: list[str], state: LineState) -> str:
    facts = f"next={state.next_step} attempt={state.attempt} writer={state.writer or '-'}"
    facts += f" {state.status}"
    if state.closed is not None or state.lost is not None:
        facts += f" ({state.closed or state.lost})"
    if state.released_to is not None:
        facts += f" (to {state.released_to})"
    if state.error is not None:
        facts += f" stopped by {state.error.name} at step {state.error.step}"
    counts = dict(zip(state.counts._fields, state.counts, strict=True))
    counts["superseded"] = state.superseded
    told = ", ".join(f"{name} {count}" for name, count in counts.items() if count)
    if state.first_bad is not None:
        told += f", first bad step {state.first_bad}"
    return f"line: {' '.join(line) or '-'}\nstate: {facts}\ncounts: {told or '-'}\n"
