"""The patches of `tests/golden/patches.txt`: found by this build, and they lead where they say."""

from pathlib import Path
from typing import NamedTuple

import pytest

from eventlog.canonical import decode, encode
from eventlog.json_form import dumps, loads
from eventlog.state_patch import apply, diff, same

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "patches.txt"


class Scenario(NamedTuple):
    """One scenario, as read."""

    what: str
    why: str
    before: object
    after: object
    operations: list[str]


def scenarios() -> list[Scenario]:
    """All scenarios of the file, in order."""
    found = []
    for block in GOLDEN.read_text(encoding="utf-8").split("\n\n"):
        lines = [line for line in block.splitlines() if not line.startswith("#")]
        if not lines:
            continue
        fields: dict[str, list[str]] = {}
        for line in lines:
            name, text = line[:8].strip().removesuffix(":"), line[8:]
            if name:
                fields.setdefault(name, []).append(text)
            else:
                fields["why"][-1] += f" {text}"
        found.append(
            Scenario(
                fields["what"][0],
                fields["why"][0],
                loads(fields["before"][0]),
                loads(fields["after"][0]),
                fields.get("op", []),
            )
        )
    return found


SCENARIOS = scenarios()


def test_every_scenario_says_what_and_why_once() -> None:
    assert len(SCENARIOS) == GOLDEN.read_text(encoding="utf-8").count("what:") > 20
    assert len({scenario.what for scenario in SCENARIOS}) == len(SCENARIOS)
    assert all(scenario.why for scenario in SCENARIOS)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=[scenario.what for scenario in SCENARIOS])
def test_this_is_the_patch(scenario: Scenario) -> None:
    assert list(map(dumps, diff(scenario.before, scenario.after))) == scenario.operations


@pytest.mark.parametrize("scenario", SCENARIOS, ids=[scenario.what for scenario in SCENARIOS])
def test_the_patch_leads_there(scenario: Scenario) -> None:
    operations = [loads(operation) for operation in scenario.operations]
    state = decode(encode(scenario.before), opaque=True)
    assert same(apply(decode(encode(operations), opaque=True), state), scenario.after)
