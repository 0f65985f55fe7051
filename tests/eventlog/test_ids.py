"""Ids are of their RFC 9562 version, never repeat, and a key's id is the same everywhere."""

import multiprocessing
import uuid
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256

from eventlog.ids import event_id_from_key, mint_event_id, mint_session_id, mint_writer_id


def test_event_ids_are_uuid_version_7_and_differ() -> None:
    minted = [mint_event_id() for _ in range(5_000)]
    assert len(set(minted)) == len(minted)
    for event_id in minted[:100]:
        assert len(event_id) == 16
        parsed = uuid.UUID(bytes=event_id)
        assert parsed.version == 7
        assert parsed.variant == uuid.RFC_4122


def test_event_ids_sort_by_the_millisecond_they_were_minted_in() -> None:
    minted = [mint_event_id()[:6] for _ in range(1_000)]
    assert minted == sorted(minted)


def test_session_and_writer_ids_are_uuid_text() -> None:
    assert uuid.UUID(mint_session_id()).version == 7
    assert uuid.UUID(mint_writer_id()).version == 7


def test_an_id_from_a_key_follows_the_published_recipe() -> None:
    raw = bytearray(sha256(b"steplog event id\x00s/1\x00import:0").digest()[:16])
    raw[6] = raw[6] & 0x0F | 0x80
    raw[8] = raw[8] & 0x3F | 0x80
    assert event_id_from_key("s/1", "import:0") == bytes(raw)
    parsed = uuid.UUID(bytes=bytes(raw))
    assert parsed.version == 8
    assert parsed.variant == uuid.RFC_4122


def test_an_id_from_a_key_is_pinned() -> None:
    assert event_id_from_key("session", "key").hex() == "05d9a80f6f6e80e3a108bbd6910439e7"


def test_keys_and_sessions_do_not_run_into_each_other() -> None:
    assert event_id_from_key("a", "b\x00c") != event_id_from_key("a", "b")
    assert event_id_from_key("ab", "c") != event_id_from_key("a", "bc")
    assert event_id_from_key("a", "\ud800") != event_id_from_key("a", "?")


def _mint(count: int) -> list[bytes]:
    return [mint_event_id() for _ in range(count)]


def test_forked_processes_draw_different_numbers() -> None:
    """Also where the parent had drawn some ahead."""
    mint_event_id()
    context = multiprocessing.get_context("fork")
    with context.Pool(4) as pool:
        minted = [event_id for part in pool.map(_mint, [50] * 8) for event_id in part]
    minted += _mint(50)
    assert len({event_id[8:] for event_id in minted}) == len(minted)


def test_threads_draw_different_numbers() -> None:
    with ThreadPoolExecutor(4) as pool:
        minted = [event_id for part in pool.map(_mint, [2_000] * 8) for event_id in part]
    assert len({event_id[8:] for event_id in minted}) == len(minted)


def test_forked_processes_mint_different_ids() -> None:
    context = multiprocessing.get_context("fork")
    with context.Pool(4) as pool:
        minted = [event_id for part in pool.map(_mint, [500] * 8) for event_id in part]
    assert len(set(minted)) == len(minted)
