"""A training whose log cannot be written is told how it goes on: not as a session of a user's."""

from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: checkpoint sets not shown")

from eventlog.errors import LogUnavailableError, RecorderEndedError  # noqa: E402
from replay.workspace import open_workspace  # noqa: E402
from tests.support.set_toy import Toy  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is")

NAME = "run"


def test_a_full_log_says_how_the_training_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hint was `ws.resume('run')`, which refuses a training's session."""
    again = rf"`with ws\.training\({NAME!r}\)`, entered anew after this block is left, goes on"
    toy = Toy()
    with open_workspace(tmp_path) as ws:
        submit = ws.log.submit_events

        def full(session_id: str, *given: Any, **more: Any) -> Any:
            if session_id != NAME:
                return submit(session_id, *given, **more)
            answer: Future[Any] = Future()
            answer.set_exception(LogUnavailableError("the log is full", hint="free some space"))
            return answer

        with pytest.raises(RecorderEndedError, match=again), ws.training(NAME) as run:  # noqa: PT012
            monkeypatch.setattr(ws.log, "submit_events", full)
            with pytest.raises(LogUnavailableError, match=again) as caught:
                run.checkpoint(1, **toy.objects())
            assert "ws.resume" not in caught.value.hint
            monkeypatch.setattr(ws.log, "submit_events", submit)
            run.checkpoint(2, **toy.objects())
        with ws.training(NAME) as run:
            assert run.restore_latest(**toy.objects()) is None
            run.checkpoint(1, **toy.objects())
