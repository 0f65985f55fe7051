"""Canonical values: MB/s of both encoders on real states, what the guards cost, and decoding."""

import datetime
import hashlib
import json
import random
from collections.abc import Callable
from typing import Any, Final

from benchmarks.capture import airline_state
from benchmarks.harness import NOT_INSTALLED, Row, measure_cpu, peer_installed, report
from eventlog.values import (
    canonical_accelerated,
    canonical_accelerated_decoder,
    canonical_reference,
    canonical_reference_decoder,
)
from eventlog.values.shared_objects import find_shared

PURE_MB_S: Final = 60
ACCELERATED_MB_S: Final = 250
STEP_MS: Final = 8.0
DECODE_MS: Final = 20.0
PATCH_DECODE_US: Final = 2.0
REPEAT: Final = 15
SMALL_CALLS: Final = 20_000


def transcript_state() -> dict[str, Any]:
    """300 messages of text, 0.4 MB: where a state is mostly text."""
    rng = random.Random(3)
    words = ["refund", "order", "flight", "the", "customer", "is", "Zürich", "€", "policy", "no"]
    return {
        "messages": [
            {"role": "tool" if at % 2 else "user", "content": " ".join(rng.choices(words, k=220))}
            for at in range(300)
        ],
        "step": 300,
    }


def mostly_plain_state() -> dict[str, Any]:
    """The airline state; each 20th record has a datetime, a tuple, a set, an int-keyed dict."""
    state = json.loads(json.dumps(airline_state()))
    for at, record in enumerate(state["reservations"].values()):
        if at % 20 == 0:
            record["seen"] = datetime.datetime(2024, 5, 1, 12, 30)
            record["seat"] = (at, "A")
            record["tags"] = {"a", "b"}
            record["prices"] = {1: 100, 2: 250}
    return state  # type: ignore[no-any-return]


def number_state() -> dict[str, Any]:
    """3,000 lists of 100 floats, 2.7 MB: where a state is mostly numbers."""
    rng = random.Random(5)
    return {"weights": [[rng.gauss(0, 1) for _ in range(100)] for _ in range(3_000)]}


def seconds(work: Callable[[], object], repeat: int = REPEAT) -> float:
    """The best CPU time of one call, in s."""
    return measure_cpu(work, repeat).best_cpu_s


def encode_rows(name: str, state: dict[str, Any], barred: bool) -> list[Row]:
    """MB/s of both encoders on one state, beside cbor2 (canonical) and sorted stdlib JSON."""
    size_mb = len(canonical_reference.encode(state)) / 1e6
    pure = size_mb / seconds(lambda: canonical_reference.encode(state), 7)
    accelerated = size_mb / seconds(lambda: canonical_accelerated.encode(state))
    peers = peer_rates(state)
    rows = []
    for how, rate, bar in (
        ("pure", pure, PURE_MB_S),
        ("accelerated", accelerated, ACCELERATED_MB_S),
    ):
        shown = f">= {bar} MB/s" if barred else "-"
        met = rate >= bar if barred else None
        rows.append(Row(f"encode {name}, {how}", shown, peers, f"{rate:.0f} MB/s", met))
    return rows


def peer_rates(state: dict[str, Any]) -> str:
    """MB/s of what the peers write themselves; `-` where one refuses the state."""
    return f"cbor2 {_cbor2_rate(state)}, sorted json {_json_rate(state)}"


def _cbor2_rate(state: dict[str, Any]) -> str:
    if not peer_installed("cbor2"):
        return NOT_INSTALLED
    import cbor2

    try:
        size = len(cbor2.dumps(state, canonical=True))
    except (TypeError, ValueError, cbor2.CBOREncodeError):
        return "refuses"
    return f"{size / 1e6 / seconds(lambda: cbor2.dumps(state, canonical=True), 5):.0f}"


def _json_rate(state: dict[str, Any]) -> str:
    try:
        size = len(json.dumps(state, sort_keys=True))
    except TypeError:
        return "refuses"
    return f"{size / 1e6 / seconds(lambda: json.dumps(state, sort_keys=True), 5):.0f}"


def step_rows(state: dict[str, Any]) -> list[Row]:
    """What capturing an unchanged 2.5 MB state costs: bytes with all guards, then its digest."""
    raw_ms = "-"
    if peer_installed("ormsgpack"):
        import ormsgpack

        raw_ms = f"ormsgpack unguarded {seconds(lambda: ormsgpack.packb(state)) * 1e3:.1f} ms"
    captured = seconds(lambda: hashlib.sha256(canonical_accelerated.encode(state)).digest()) * 1e3
    shared = seconds(lambda: find_shared(state), 7) * 1e3
    return [
        Row(
            "encode 2.5 MB with guards, and SHA-256",
            f"<= {STEP_MS:.0f} ms",
            raw_ms,
            f"{captured:.1f} ms",
            captured <= STEP_MS,
        ),
        Row("look for objects reached twice in it", "-", "-", f"{shared:.1f} ms", None),
    ]


def decode_rows(state: dict[str, Any]) -> list[Row]:
    """Reading a 2.5 MB state and a patch back, strictly."""
    data = canonical_reference.encode(state)
    ours = seconds(lambda: canonical_accelerated_decoder.decode(data)) * 1e3
    pure = seconds(lambda: canonical_reference_decoder.decode(data), 3) * 1e3
    patch = canonical_reference.encode(
        [["set", ["reservations", "4WQ150", "flights", 1, "price"], 883], ["set", ["step"], 17]]
    )
    small = seconds(
        lambda: [canonical_accelerated_decoder.decode(patch) for _ in range(SMALL_CALLS)], 5
    )
    small_us = small / SMALL_CALLS * 1e6
    peers = []
    if peer_installed("cbor2"):
        import cbor2

        written = cbor2.dumps(state, canonical=True)
        peers.append(f"cbor2 {seconds(lambda: cbor2.loads(written), 5) * 1e3:.1f} ms")
    if peer_installed("ormsgpack"):
        import ormsgpack

        unchecked = seconds(lambda: ormsgpack.unpackb(data)) * 1e3
        peers.append(f"ormsgpack unchecked {unchecked:.1f} ms")
    peer = ", ".join(peers) or NOT_INSTALLED
    return [
        Row("decode 2.5 MB, strict", "<= 20 ms", peer, f"{ours:.1f} ms", ours <= DECODE_MS),
        Row("decode 2.5 MB, strict, pure", "-", peer, f"{pure:.0f} ms", None),
        Row(
            f"decode a patch of {len(patch)} B, strict",
            "<= 2 us",
            "-",
            f"{small_us:.2f} us",
            small_us <= PATCH_DECODE_US,
        ),
    ]


def main() -> None:
    """Print the figures."""
    state = airline_state()
    report(
        [
            *encode_rows("airline, 2.5 MB", state, barred=True),
            *encode_rows("transcript, 0.4 MB", transcript_state(), barred=True),
            *encode_rows("airline with special values", mostly_plain_state(), barred=False),
            *encode_rows("floats, 2.7 MB", number_state(), barred=False),
            *step_rows(state),
            *decode_rows(state),
        ]
    )


if __name__ == "__main__":
    main()
