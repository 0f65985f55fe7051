"""Every real trace through Kafka: the same digests and states as through the embedded log."""

from collections.abc import Callable
from pathlib import Path

from replay.workspace import Workspace, open_workspace
from tests.support.brokers import KafkaAddress
from tests.support.data import data_path
from tests.support.imported_states import import_all, state_lines

FOLDERS = ("nemo_gym", "tau_bench_airline", "bfcl_multi_turn", "swe_agent")


def trace_files() -> list[Path]:
    """The files that hold sessions: not the task inputs, nor what was derived from sessions."""
    return [
        file
        for folder in FOLDERS
        for file in sorted(data_path("traces", folder).iterdir())
        if ".inputs." not in file.name and not file.name.startswith("gold.")
    ]


def digests_of(ws: Workspace) -> dict[str, list[bytes]]:
    """The event digests of every session."""
    return {
        info.session_id: [record.digest for record in ws.log.read_session(info.session_id)]
        for info in ws.sessions()
    }


def test_imported_sessions_are_the_same_in_both_logs(
    kafka_broker: KafkaAddress, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    files = trace_files()
    topic = new_topic(4)
    url = f"kafka://{kafka_broker.bootstrap}/{topic}?folder={tmp_path / 'kafka'}"
    with open_workspace(tmp_path / "local") as local:
        brought = import_all(local, files)
        with open_workspace(url) as ws:
            assert import_all(ws, files) == brought
            again = import_all(ws, files)
            assert [count for _, count in again] == [0] * len(brought)
            ws.log.end_cut()
        # Everything is mirrored now: the states are read without asking again for each.
        with open_workspace(url, refresh=False) as ws:
            assert digests_of(ws) == digests_of(local)
            lines = sorted(state_lines(ws))
            assert lines == sorted(state_lines(local))
            assert len(lines) > 6_900
