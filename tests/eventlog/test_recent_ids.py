"""`RecentIds` against a plain list."""

import random

from eventlog.ids import event_id_from_key, mint_event_id
from eventlog.keeping.recent_ids import RecentIds


def test_it_finds_what_a_list_finds() -> None:
    rng = random.Random(3)
    recent = RecentIds(64, 10)
    line: list[bytes] = []
    for number in range(400):
        count = rng.choice((1, 1, 3, 70))
        minted = [mint_event_id() for _ in range(count)]
        keyed = [event_id_from_key("s", f"{number}/{place}") for place in range(count)]
        odd = [bytes([rng.randrange(2)]) * 16 for _ in range(count)]
        new = [rng.choice(options) for options in zip(minted, keyed, odd, strict=True)]
        rng.shuffle(new)
        recent.note(new, 1)
        line += new
        assert recent.head == (1, 9 + len(line))
        assert recent.next_step == 10 + len(line)
        end = 10 + len(line)
        window = {event_id: 10 + place for place, event_id in enumerate(line)}
        first = {}
        for place, event_id in enumerate(line[-64:], max(0, len(line) - 64)):
            first.setdefault(event_id, 10 + place)
        asked = [*rng.sample(line, min(3, len(line))), mint_event_id(), rng.randbytes(16)]
        steps = [first[event_id] for event_id in asked if event_id in first]
        assert recent.find(asked, end) == min(steps, default=None)
        assert window


def test_it_stays_small() -> None:
    recent = RecentIds(1_024, 0)
    for _ in range(20):
        recent.note([mint_event_id() for _ in range(1_000)], 1)
    assert len(recent._ids) <= 2 * 1_024 * 16


def test_an_id_that_straddles_two_others_is_not_found() -> None:
    recent = RecentIds(8, 0)
    first, second = bytes(range(16)), bytes(range(16, 32))
    recent.note([first, second], 1)
    assert recent.find([(first + second)[5:21]], 2) is None
    assert recent.find([second], 2) == 1
