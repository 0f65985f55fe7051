"""A topic that is not what was mirrored: made anew, other partitions, records gone or changed."""

from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor

import pytest

from eventlog.errors import ConfigError, LogUnavailableError, StepGapError, TopicChangedError
from eventlog.mirror import Mirror
from tests.support.events import EventChain
from tests.support.mirror_truth import read_line
from tests.support.topic import FakeReader, FakeTopic

OpenMirror = Callable[..., Mirror]


def write_chain(topic: FakeTopic, name: str, calls: int = 4) -> EventChain:
    """A session of 1 + `calls` events, each in a transaction of its own."""
    chain = EventChain(name)
    chain.seed(writer="w")
    for _ in range(calls):
        chain.call()
    for encoded in chain.events:
        topic.write([(name, encoded.data)])
    return chain


def grow(topic: FakeTopic, chain: EventChain, calls: int = 1) -> None:
    """More events of a session."""
    for _ in range(calls):
        topic.write([(chain.session_id, chain.call().data)])


def test_a_topic_deleted_and_made_again_stops_the_mirror(
    topic: FakeTopic, mirror: Mirror, open_mirror: OpenMirror
) -> None:
    write_chain(topic, "s")
    mirror.refresh()
    before, old_id = mirror.cut(), topic.topic_id
    topic.make_anew(3)
    for number in range(20):
        # More of it than there was: offsets go on as if nothing had happened.
        write_chain(topic, f"new-{number}")
    for each in (mirror, open_mirror()):
        with pytest.raises(TopicChangedError, match="made again") as caught:
            each.refresh()
        assert old_id in caught.value.message
        assert topic.topic_id in caught.value.message
        assert "remove" in caught.value.hint
        assert each.cut() == before
        assert [info.session_id for info in each.reader.list_sessions(None)] == ["s"]


def test_a_topic_made_again_while_it_is_read_is_noticed_before_anything_is_stored(
    topic: FakeTopic, mirror: Mirror
) -> None:
    write_chain(topic, "s")
    mirror.refresh()
    before = mirror.cut()
    write_chain(topic, "s2")

    def replace() -> None:
        topic.before_fetch = lambda: None
        topic.make_anew(3)
        for number in range(40):
            write_chain(topic, f"new-{number}")

    topic.before_fetch = replace
    with pytest.raises(TopicChangedError, match="made again"):
        mirror.refresh()
    assert mirror.cut() == before


def test_a_topic_that_is_empty_again_stops_the_mirror(topic: FakeTopic, mirror: Mirror) -> None:
    write_chain(topic, "s")
    mirror.refresh()
    topic.make_anew(3)
    with pytest.raises(TopicChangedError, match="made again"):
        mirror.refresh()


def test_a_topic_that_is_gone_is_named_and_what_was_read_stays(
    topic: FakeTopic, mirror: Mirror
) -> None:
    chain = write_chain(topic, "s")
    mirror.refresh()
    topic.is_missing = True
    with pytest.raises(TopicChangedError, match="not there any more"):
        mirror.refresh()
    assert [each.data for each in read_line(mirror, "s")] == [e.data for e in chain.events]


def test_a_topic_that_never_was_is_a_mistake_in_the_settings(
    topic: FakeTopic, mirror: Mirror
) -> None:
    topic.is_missing = True
    for ask in (mirror.refresh, mirror.partition_count):
        with pytest.raises(ConfigError, match="no such topic"):
            ask()


def test_more_partitions_stop_the_mirror(
    topic: FakeTopic, mirror: Mirror, open_mirror: OpenMirror
) -> None:
    chain = write_chain(topic, "s")
    mirror.refresh()
    topic.add_partitions(2)
    with pytest.raises(TopicChangedError, match="had 3 partitions"):
        open_mirror().refresh()
    grow(topic, chain)
    with pytest.raises(TopicChangedError, match="had 3 partitions"):
        mirror.refresh()


def test_partitions_that_the_topic_does_not_have(mirror: Mirror) -> None:
    with pytest.raises(ConfigError, match="has partitions 0 to 2"):
        mirror.refresh({1, 7})


def test_another_topics_mirror_is_refused_by_both_names(
    topic: FakeTopic, mirror: Mirror, open_mirror: OpenMirror
) -> None:
    write_chain(topic, "s")
    mirror.refresh()
    topic.name = "others"
    with pytest.raises(ConfigError, match="holds the mirror of topic 'events', not of 'others'"):
        open_mirror().refresh()


def test_records_deleted_before_they_were_read_stop_the_mirror(
    topic: FakeTopic, mirror: Mirror, open_mirror: OpenMirror
) -> None:
    chain = write_chain(topic, "s", calls=2)
    mirror.refresh()
    grow(topic, chain, calls=3)
    part = topic.part_of("s")
    position = mirror.cut().end(part)
    topic.delete_before(part, position + 2)
    for each in (mirror, open_mirror()):
        with pytest.raises(TopicChangedError, match=f"offset {position + 2}.*up to {position}"):
            each.refresh()
        assert len(read_line(each, "s")) == 3
    last = open_mirror(allow_truncated=True)
    last.refresh()
    info = last.reader.session_info("s")
    assert info.step_count == 3
    assert info.error is not None
    assert "step 3 is missing" in info.error
    assert len(read_line(last, "s")) == 3
    findings = [each for each in last.find_damage() if each.partition == part]
    assert "were deleted before they were mirrored" in findings[0].detail


def test_records_deleted_after_they_were_read_are_no_trouble(
    topic: FakeTopic, mirror: Mirror, open_mirror: OpenMirror
) -> None:
    chain = write_chain(topic, "s")
    mirror.refresh()
    topic.delete_before(topic.part_of("s"), mirror.cut().end(topic.part_of("s")))
    grow(topic, chain)
    open_mirror().refresh()
    mirror.refresh()
    assert [each.data for each in read_line(mirror, "s")] == [e.data for e in chain.events]


def test_a_fresh_mirror_of_a_truncated_topic(
    topic: FakeTopic, mirror: Mirror, open_mirror: OpenMirror
) -> None:
    chain = write_chain(topic, "s")
    part = topic.part_of("s")
    whole = next(f"t{n}" for n in range(99) if topic.part_of(f"t{n}") == part)
    topic.delete_before(part, 3)
    write_chain(topic, whole)
    with pytest.raises(TopicChangedError, match="begins at offset 3"):
        mirror.refresh()
    last = open_mirror(allow_truncated=True)
    last.refresh()
    assert [info.session_id for info in last.reader.list_sessions(None)] == [whole]
    for ask in (last.reader.session_info, last.reader.find_session, lambda s: read_line(last, s)):
        with pytest.raises(StepGapError, match="head missing"):
            ask("s")
    assert [e.data for e in last.session_records("s")] == [e.data for e in chain.events[2:]]
    assert any(each.session_id == "s" for each in last.find_damage())


def test_acknowledged_records_that_are_gone_from_the_end_stop_the_mirror(
    topic: FakeTopic, mirror: Mirror, open_mirror: OpenMirror
) -> None:
    write_chain(topic, "s")
    mirror.refresh()
    part = topic.part_of("s")
    del topic.parts[part][4:]
    for each in (mirror, open_mirror()):
        with pytest.raises(TopicChangedError, match="ends at offset 4, but was mirrored up to 10"):
            each.refresh()


def test_a_last_record_that_is_another_stops_the_mirror(
    topic: FakeTopic, mirror: Mirror, open_mirror: OpenMirror
) -> None:
    chain = write_chain(topic, "s")
    mirror.refresh()
    part = topic.part_of("s")
    entries = topic.parts[part]
    entries[8] = entries[8]._replace(value=chain.events[1].data)
    grow(topic, chain)
    with pytest.raises(TopicChangedError, match="record at offset 8 of partition") as caught:
        open_mirror().refresh()
    assert chain.events[4].digest.hex() in caught.value.message
    assert chain.events[1].digest.hex() in caught.value.message
    entries[8] = entries[8]._replace(value=None, is_marker=True)
    with pytest.raises(TopicChangedError, match="not there any more"):
        open_mirror().refresh()


def test_brokers_that_do_not_answer_are_told_at_the_deadline_and_reading_goes_on(
    topic: FakeTopic, mirror: Mirror
) -> None:
    chain = write_chain(topic, "s")
    mirror.refresh()
    grow(topic, chain)
    topic.is_down = True
    with pytest.raises(LogUnavailableError, match="no broker answers"):
        mirror.refresh(timeout_s=0.2)
    assert len(read_line(mirror, "s")) == 5
    topic.is_down = False
    mirror.refresh()
    assert len(read_line(mirror, "s")) == 6


def test_who_never_reached_a_broker_is_told_soon_and_who_did_waits_as_long_as_ever(
    topic: FakeTopic, open_mirror: Callable[[], Mirror], monkeypatch: pytest.MonkeyPatch
) -> None:
    def waited_s(mirror: Mirror, **given: float) -> float:
        with pytest.raises(LogUnavailableError, match=r"no broker answers \(waited ") as caught:
            mirror.refresh(**given)
        return float(caught.value.message.rpartition("(waited ")[2].removesuffix(" s)"))

    monkeypatch.setattr("eventlog.mirror.FIRST_ANSWER_S", 0.2)
    monkeypatch.setattr("eventlog.mirror.REFRESH_S", 60.0)
    reached = open_mirror()
    reached.refresh()
    topic.is_down = True
    assert 0.2 <= waited_s(open_mirror()) < 30
    # Appends and claims name their own deadline.
    assert 0.5 <= waited_s(open_mirror(), timeout_s=0.5) < 30
    monkeypatch.setattr("eventlog.mirror.REFRESH_S", 0.8)
    assert 0.8 <= waited_s(reached) < 30


def test_brokers_that_come_back_in_time_are_waited_for(topic: FakeTopic, mirror: Mirror) -> None:
    write_chain(topic, "s")
    tries = iter(range(100))

    def recover() -> None:
        topic.is_down = next(tries) < 3

    topic.before_fetch = recover
    assert mirror.refresh(timeout_s=20).end(topic.part_of("s")) == 10


def test_an_open_transaction_holds_back_what_comes_after_it(
    topic: FakeTopic, mirror: Mirror
) -> None:
    chain = write_chain(topic, "s", calls=1)
    part = topic.part_of("s")
    opened = topic.begin()
    opened.send(part, b"s", b"whatever")
    grow(topic, chain)
    with pytest.raises(LogUnavailableError) as caught:
        mirror.refresh(timeout_s=0.1)
    assert f"partition {part} of topic 'events' is read up to offset 4 of 7" in str(caught.value)
    others = {each for each in range(3) if each != part}
    assert mirror.refresh(others).end(part) == 4
    opened.end("aborted")
    assert mirror.refresh().end(part) == 8
    assert len(read_line(mirror, "s")) == 3


def test_another_one_that_reads_on_between_a_question_and_its_answer_is_no_loss(
    topic: FakeTopic, mirror: Mirror, open_mirror: OpenMirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain = write_chain(topic, "s")
    other = open_mirror()
    mirror.refresh()
    ask = FakeReader.high_watermarks

    def ask_and_be_overtaken(
        reader: FakeReader, partitions: Collection[int], timeout_s: float
    ) -> dict[int, int]:
        monkeypatch.setattr(FakeReader, "high_watermarks", ask)
        ends = ask(reader, partitions, timeout_s)
        grow(topic, chain)
        other.refresh()
        return ends

    monkeypatch.setattr(FakeReader, "high_watermarks", ask_and_be_overtaken)
    assert mirror.refresh().end(topic.part_of("s")) == topic.end(topic.part_of("s"))
    # What is gone by the next question is told as before.
    topic.parts[topic.part_of("s")] = topic.parts[topic.part_of("s")][:-1]
    with pytest.raises(TopicChangedError, match="acknowledged are gone"):
        mirror.refresh()


def test_whether_the_topic_is_the_same_can_be_asked_at_any_time(
    topic: FakeTopic, mirror: Mirror
) -> None:
    write_chain(topic, "s")
    mirror.require_same_topic(5)
    mirror.refresh()
    fetches = topic.fetches
    mirror.require_same_topic()
    assert topic.fetches == fetches
    topic.is_down = True
    with pytest.raises(LogUnavailableError):
        mirror.require_same_topic(0.1)
    topic.is_down, topic.is_missing = False, True
    with pytest.raises(TopicChangedError, match="not there any more"):
        mirror.require_same_topic(5)
    topic.make_anew(3)
    with pytest.raises(TopicChangedError, match="made again"):
        mirror.require_same_topic(5)


def test_whether_the_topic_is_the_same_is_asked_beside_refreshes(
    topic: FakeTopic, mirror: Mirror
) -> None:
    chain = write_chain(topic, "s")
    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(mirror.require_same_topic, 5) for _ in range(40)]
        for _ in range(20):
            grow(topic, chain)
            mirror.refresh()
        for each in asked:
            each.result()
    assert len(read_line(mirror, "s")) == 25


def test_where_partitions_begin_now(topic: FakeTopic, mirror: Mirror) -> None:
    write_chain(topic, "s")
    mirror.refresh()
    part = topic.part_of("s")
    topic.delete_before(part, 4)
    assert mirror.log_starts([part]) == {part: 4}
    topic.is_down = True
    with pytest.raises(LogUnavailableError):
        mirror.log_starts([part], 0.1)
