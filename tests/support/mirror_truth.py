"""A mirror held against the model of its topic: every record, every line, every listing."""

from collections import Counter

import pytest

from eventlog.cut import Cut
from eventlog.errors import LinkBrokenError, StepGapError
from eventlog.keeping.kept_records import read_kept
from eventlog.keeping.line_plan import plan_line
from eventlog.keeping.line_reading import read_plan
from eventlog.line_state import LineState, VerdictKind
from eventlog.log import LogRecord
from eventlog.mirror import Mirror
from eventlog.session_summary import SessionSummary, describe_session
from tests.support.topic import FakeTopic
from tests.support.topic_histories import ModelSession, TopicModel


def read_line(mirror: Mirror, session_id: str) -> list[LogRecord]:
    """The session's standing line, with places in the topic."""
    reader = mirror.reader
    return list(mirror.placed(read_plan(reader, plan_line(reader, session_id), 0, None)))


def require_true(mirror: Mirror, topic: FakeTopic) -> TopicModel:
    """Fail unless the mirror, at its end, answers what the model says; the model."""
    cut = mirror.cut()
    ends = {part: cut.end(part) for part in range(len(topic.parts))}
    model = TopicModel.of_topic(topic, ends)
    require_model(mirror, model)
    return model


def require_model(mirror: Mirror, model: TopicModel) -> None:
    """Fail unless the mirror answers what the model says, of the same records."""
    cut = mirror.cut()
    tail = [(each.partition, each.offset, each.data) for each in mirror.tail(Cut.empty(), cut)]
    assert tail == model.events
    listed = {info.session_id: info for info in mirror.reader.list_sessions(None)}
    assert listed.keys() == {each.session_id for each in model.begun()}
    for session in model.sessions.values():
        require_session(mirror, session)
        if session.state.begun:
            info = listed[session.session_id]
            assert info == mirror.reader.session_info(session.session_id)
            if session.state.parent_session not in model.sessions:
                # A branch whose parent is not there is listed by its own events.
                summary = SessionSummary.of_line(each.event for each in session.standing())
                assert info == describe_session(session.session_id, session.state, summary)
    found = [(each.partition, each.offset) for each in mirror.find_damage() if each.offset]
    headless = [each for each in model.sessions.values() if not each.state.begun]
    unreadable = [place for place in model.unreadable if place[1]]
    assert Counter(found) == Counter(unreadable), found
    assert len(mirror.reader.headless()) == len(headless)


def require_session(mirror: Mirror, session: ModelSession) -> None:
    """Fail unless the mirror has the model's verdicts, state and line of the session."""
    name, reader = session.session_id, mirror.reader
    records = list(mirror.session_records(name))
    assert [(each.offset, each.data) for each in records] == [
        (offset, encoded.data) for offset, encoded in session.records.items()
    ]
    line = reader.line_of(name)
    assert lasting(line) == lasting(session.state)
    skipped = {each.offset: each.verdict for each in reader.skipped_events(name, line)}
    assert skipped == {
        offset: str(kind)
        for offset, kind in session.verdicts.items()
        if kind is not VerdictKind.ACCEPTED
    }
    if not session.state.begun:
        for ask in (reader.find_session, reader.session_info):
            with pytest.raises(StepGapError, match="head missing"):
                ask(name)
        return
    kept = reader.require_session(name)
    accepted = [each.data for each in read_kept(reader, kept)]
    assert accepted == [each.data for each in session.accepted.values()]
    own = [each.data for each in session.standing()]
    try:
        found = [each.data for each in read_line(mirror, name)]
    except LinkBrokenError:
        assert session.state.parent_session is not None, "only a branch's prefix may be missing"
    else:
        assert found[-len(own) :] == own


def lasting(line: LineState) -> LineState:
    """A line without what is not stored: positions, and digests that are kept elsewhere."""
    return line._replace(position=0, skipped=())
