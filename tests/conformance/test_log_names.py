"""Names that are no text: a lone surrogate, as the shell gives it for a byte that is not UTF-8."""

from collections.abc import Callable

import pytest

from eventlog.cut import Cut
from eventlog.errors import ConfigError, SessionNotFoundError
from eventlog.log import EventLog, SessionFilter
from tests.support.recorded import seeded_chain

NAME = "\udcff"


@pytest.mark.parametrize(
    "ask",
    [
        lambda log: list(log.read_session(NAME)),
        lambda log: list(log.read_records(NAME)),
        lambda log: log.session_info(NAME),
        lambda log: list(log.find_damage([NAME])),
        lambda log: log.take_over([NAME], stands_on={}, reason="x"),
        lambda log: log.release(NAME),
    ],
)
def test_a_session_that_no_text_names_is_not_found(
    log: EventLog, ask: Callable[[EventLog], object]
) -> None:
    with pytest.raises(SessionNotFoundError):
        ask(log)


def test_nothing_passes_a_filter_that_is_no_text(log: EventLog) -> None:
    seeded_chain(log, "s")
    for where in (
        SessionFilter(id_prefix=NAME),
        SessionFilter(environment=NAME),
        SessionFilter(writer=NAME),
        SessionFilter(task_id=NAME),
    ):
        assert list(log.list_sessions(where)) == []


def test_a_consumers_name_that_is_no_text_is_refused(log: EventLog) -> None:
    assert log.committed_cut(NAME) == Cut.empty()
    with pytest.raises(ConfigError, match="lone surrogate"):
        log.commit_cut(NAME, log.end_cut())
