"""A workspace whose log is in Kafka does what one in a folder does."""

import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

from eventlog.config import CONFIG_FILE, create_config
from eventlog.errors import ConfigError, FencedError, LogUnavailableError, SessionNotFoundError
from eventlog.kafka.location import parse_kafka_url
from eventlog.log import SessionFilter
from eventlog.recording.session_writer import wall_clock_us
from replay.workspace import Workspace, open_workspace
from snapshots.checkpoint_store import CheckpointStore
from snapshots.policies.notes import PolicyNotes, read_history, record_publication
from snapshots.policies.rollback import roll_back
from tests.support.brokers import KafkaAddress
from tests.support.checkpoint_parts import write_checkpoint
from tests.support.command import record_desk
from tests.support.kafka_workspace import KafkaPlace, kafka_place
from tests.support.own_sessions import training_session


@pytest.fixture
def place(kafka_broker: KafkaAddress, tmp_path: Path) -> Iterator[KafkaPlace]:
    """A topic of the test's own."""
    with kafka_place(kafka_broker, tmp_path / "blobs") as place:
        yield place


@pytest.fixture
def ws(place: KafkaPlace, tmp_path: Path) -> Iterator[Workspace]:
    """A workspace on it, as one machine has it."""
    with open_workspace(place.url(tmp_path / "here")) as ws:
        yield ws


@pytest.fixture
def elsewhere(place: KafkaPlace, tmp_path: Path) -> Iterator[Workspace]:
    """The same workspace on another machine."""
    with open_workspace(place.url(tmp_path / "elsewhere")) as ws:
        yield ws


def test_what_is_recorded_comes_back_here_and_elsewhere(
    ws: Workspace, elsewhere: Workspace
) -> None:
    record_desk(ws)
    for one in (ws, elsewhere):
        assert [(info.session, info.status) for info in one.sessions()] == [("desk/1", "closed")]
        assert one.replay("desk/1", 2).state["n"] == 1
        assert [call.status for call in one.calls("desk/1")] == ["ok", "error", "ok", "open"]
        assert len(one.read_content(list(one.calls("desk/1"))[2].result)) == 5_000_000
        assert [report.verdict for report in one.check()] == ["ok"]
    digests = [[one.replay("desk/1", step) for step in range(12)] for one in (ws, elsewhere)]
    assert [each.event_digest for each in digests[0]] == [each.event_digest for each in digests[1]]


def test_a_read_sees_what_was_acknowledged_elsewhere_a_moment_before(
    ws: Workspace, elsewhere: Workspace
) -> None:
    with ws.record("s", environment="desk", state={"n": 0}) as session:
        for n in range(1, 20):
            with session.call("add", {"n": n}) as call:
                call.state = {"n": n}
            assert elsewhere.replay("s").state == {"n": n}


def test_a_session_goes_on_elsewhere_and_its_writer_is_fenced(
    ws: Workspace, elsewhere: Workspace
) -> None:
    state = {"n": 1}
    before = ws.record("s", environment="desk", state=lambda: state)
    other = ws.record("mine", environment="desk")
    with elsewhere.resume("s", state=lambda: state) as session:
        assert session.state == {"n": 1}
        assert session.attempt == 2
        with pytest.raises(FencedError):
            before.annotate("late", 1)
        session.annotate("going on", 1)
    other.annotate("still mine", 1)
    other.close()
    assert {info.session: info.status for info in ws.sessions()} == {
        "s": "closed",
        "mine": "closed",
    }
    assert {report.verdict for report in ws.check()} == {"ok"}


def test_forks_diffs_and_snapshots(ws: Workspace, elsewhere: Workspace) -> None:
    record_desk(ws)
    branch = elsewhere.fork("desk/1", 2, name="desk/1/B")
    with elsewhere.resume(branch) as session:
        session.annotate("what if", 1)
    lines = ws.diff("desk/1", branch)
    assert (lines.equal, lines.first_step) == (False, 3)
    assert {change.path for change in ws.diff(("desk/1", 0), ("desk/1", 2)).changes} == {("n",)}
    ws.take_snapshot("desk/1", 2)
    assert ws.replay("desk/1", 2).from_snapshot == 2
    assert ws.replay("desk/1/B", 2).state == ws.replay("desk/1", 2).state


def test_a_late_verification_and_a_consumer(ws: Workspace, elsewhere: Workspace) -> None:
    record_desk(ws)
    elsewhere.record_late_verification("desk/1", 0.25, verifier="judge")
    assert ws.session("desk/1").reward == 0.25
    cut = ws.log.committed_cut("g")
    kinds = []
    for record in ws.log.tail_events(cut):
        kinds.append(ws.event_of(record).kind)
        cut = cut.including(record.partition, record.offset)
    assert kinds[:2] == ["session_seeded", "tool_called"]
    assert kinds[-3:] == ["session_resumed", "verified", "session_closed"]
    ws.log.commit_cut("g", cut)
    assert elsewhere.log.committed_cut("g") == cut
    assert list(elsewhere.log.tail_events(cut)) == []


def test_the_folder_is_the_workspace_too(ws: Workspace, tmp_path: Path) -> None:
    record_desk(ws)
    text = (tmp_path / "here" / CONFIG_FILE).read_text()
    assert "format = 1\n" in text
    assert "folder=" not in text
    with open_workspace(tmp_path / "here", create=False) as again:
        assert again.session("desk/1").status == "closed"
        assert again.blobs.folder == tmp_path / "blobs"  # type: ignore[attr-defined]
        assert repr(again) == repr(ws)
    moved = tmp_path / "here" / ".." / "moved"
    ws.close()
    (tmp_path / "here").rename(moved)
    with open_workspace(tmp_path / "moved", create=False) as again:
        assert again.replay("desk/1").step == 11


def test_a_url_without_stores_finds_those_of_its_folder(
    ws: Workspace, place: KafkaPlace, tmp_path: Path
) -> None:
    short = f"kafka://{place.broker.bootstrap}/{place.topic}?folder={tmp_path / 'here'}"
    with open_workspace(short) as again:
        assert again.blobs.folder == tmp_path / "blobs"  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="other blobs"):
        open_workspace(f"{short}&blobs=/elsewhere")
    with pytest.raises(ConfigError, match="is the local part of topic"):
        open_workspace(short.replace(place.topic, "another"))


def test_a_pickled_workspace_carries_its_url(
    place: KafkaPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEPLOG_KAFKA_SASL_PASSWORD", "")
    open_workspace(place.url(tmp_path / "here")).close()
    with open_workspace(place.url(tmp_path / "here"), refresh=False) as ws:
        data = pickle.dumps(ws)
        assert len(data) < 1000
        with pickle.loads(data) as again:
            assert repr(again) == repr(ws) == f"Workspace({place.url(tmp_path / 'here')!r})"
            assert again.log.refreshes is False
            assert again.log.writer_id != ws.log.writer_id
        with pickle.loads(pickle.dumps(ws.log)) as log:
            assert (log.topic, log.refreshes) == (place.topic, False)


def test_reading_without_the_servers(place: KafkaPlace, tmp_path: Path) -> None:
    with open_workspace(place.url(tmp_path / "here")) as ws:
        record_desk(ws)
        assert ws.replay("desk/1").step == 11
        record_desk(ws, "desk/2")
    with open_workspace(tmp_path / "here", refresh=False) as ws:
        known = [info.session for info in ws.sessions()]
        assert known[0] == "desk/1"
        assert ws.replay("desk/1", 2).state["n"] == 1
        if "desk/2" not in known:
            with pytest.raises(SessionNotFoundError):
                ws.session("desk/2")
    with open_workspace(tmp_path / "here") as ws:
        assert [info.session for info in ws.sessions()] == ["desk/1", "desk/2"]


def test_a_local_workspace_is_no_local_part(place: KafkaPlace, tmp_path: Path) -> None:
    (tmp_path / "local").mkdir()
    create_config(tmp_path / "local")
    with pytest.raises(ConfigError, match="with a log of its own"):
        open_workspace(place.url(tmp_path / "local"))


def test_a_topic_that_is_not_there_is_told_how_to_be_made(
    kafka_broker: KafkaAddress, tmp_path: Path
) -> None:
    with kafka_place(kafka_broker, tmp_path / "blobs", make=False) as place:
        with pytest.raises(ConfigError, match=place.topic) as caught:
            open_workspace(place.url(tmp_path / "here"))
        assert "steplog topic create" in caught.value.hint
        assert list(tmp_path.iterdir()) == [], "no part is made of what is not there"
        place.make()
        with open_workspace(place.url(tmp_path / "here")) as ws:
            record_desk(ws)


def test_a_topic_that_goes_away_is_told(place: KafkaPlace, tmp_path: Path) -> None:
    with open_workspace(place.url(tmp_path / "here")) as ws:
        place.broker.delete_topics(place.topic)
        with pytest.raises(ConfigError, match=place.topic):
            list(ws.sessions())
        with pytest.raises(ConfigError, match=place.topic):
            ws.record("s", environment="desk")


def test_servers_that_are_not_there_are_unavailable(tmp_path: Path) -> None:
    url = f"kafka://127.0.0.1:1/t?folder={tmp_path / 'here'}"
    (tmp_path / "here").mkdir()
    create_config(tmp_path / "here", parse_kafka_url(url))
    with open_workspace(url) as ws:
        log = ws.log
        with pytest.raises(LogUnavailableError, match=r"127\.0\.0\.1:1"):
            log.mirror.refresh(timeout_s=0.5)  # type: ignore[attr-defined]


def test_sessions_of_a_bad_version_are_voided_whoever_wrote_them(
    ws: Workspace, elsewhere: Workspace
) -> None:
    with ws.record("closed", environment="desk", policy=12):
        pass
    ws.record("released", environment="desk", policy=12).release()
    writer = ws.record("open", environment="desk", policy=12)
    ws.record("other", environment="desk", policy=11)
    where = SessionFilter(policy_min=12, policy_max=13)
    found = {one.session: one for one in elsewhere.void_sessions(where, reason="it cheats")}
    assert {name: one.step for name, one in found.items()} == {
        "closed": 3,
        "released": 3,
        "open": None,
    }
    (fenced,) = elsewhere.void_sessions(where, reason="it cheats", fence=True)
    assert (fenced.session, fenced.step, fenced.left) == ("open", 2, None)
    with pytest.raises(FencedError):
        writer.annotate("late", 1)
    assert elsewhere.void_sessions(where, reason="it cheats", fence=True) == []
    assert {info.session: info.voided is not None for info in ws.sessions()} == {
        "closed": True,
        "released": True,
        "open": True,
        "other": False,
    }
    assert {report.verdict for report in ws.check()} == {"ok"}


def test_going_back_to_a_version_fences_no_trainer(ws: Workspace, elsewhere: Workspace) -> None:
    run = training_session(ws, "run-1")
    store = CheckpointStore(ws.folder / "checkpoints", "policies-run-1")
    for version in (1, 2):
        kept = write_checkpoint(store, version, {"w": bytes([version]) * 500})
        record_publication(run, version, str(version), kept)
    notes = PolicyNotes(elsewhere.log, "run-1")
    went = roll_back(notes, store, "1", "it cheats", clock_us=wall_clock_us)
    assert (went.version.label, went.moved) == ("1", True)
    run.annotate("going on", 1)
    assert [one.current for one in read_history(ws.log, "run-1")] == [True, False]
