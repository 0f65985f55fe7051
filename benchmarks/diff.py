"""State patches: CPU to find what differs between two states, and to apply it; bytes of a patch."""

from typing import Any, Final

from benchmarks.capture import airline_state, one_record_changed
from benchmarks.harness import NOT_INSTALLED, Row, measure_cpu, peer_installed, report
from eventlog.canonical import decode, encode
from eventlog.encoded_state import EncodedState
from eventlog.state_patch import apply, diff

BAR_KEYS_MS: Final = 2.0
REPEAT: Final = 15
APPLIED: Final = 10_000
TRIMMED_STEPS: Final = 60


def keyed_state() -> dict[str, Any]:
    """1,000 keys of records with a few fields and short lists, 90 kB."""
    return {
        f"order-{number}": {
            "id": number,
            "status": "open",
            "customer": f"customer {number % 97}",
            "lines": [{"item": f"item {line}", "count": line} for line in range(number % 4)],
            "total": number * 1.25,
        }
        for number in range(1_000)
    }


def four_changes(state: dict[str, Any]) -> dict[str, Any]:
    """A field set, a list grown, a key removed and one added."""
    changed: dict[str, Any] = copy_of(state)
    changed["order-5"]["status"] = "paid"
    changed["order-703"]["lines"].append({"item": "gift", "count": 1})
    del changed["order-900"]
    changed["order-new"] = {"id": -1, "status": "open"}
    return changed


def copy_of(state: Any) -> Any:
    """A state that shares nothing, as a fold holds it."""
    return decode(encode(state), opaque=True)


def milliseconds(work: Any, repeat: int = REPEAT) -> float:
    """The best CPU time of one call, in ms."""
    return measure_cpu(work, repeat).best_cpu_s * 1e3


def keyed_rows() -> list[Row]:
    """1,000 keys with 4 changes, beside the libraries that do the same."""
    before = keyed_state()
    after = four_changes(before)
    jsonpatch_ms = deepdiff_ms = NOT_INSTALLED
    if peer_installed("jsonpatch", "deepdiff"):
        import deepdiff
        import jsonpatch

        jsonpatch_ms = f"{milliseconds(lambda: jsonpatch.make_patch(before, after), 5):.1f} ms"
        deepdiff_ms = f"{milliseconds(lambda: deepdiff.DeepDiff(before, after), 3):.1f} ms"
    ours = milliseconds(lambda: diff(before, after))
    state, data = EncodedState(encode(before)), encode(after)
    state.patch_to(data)
    kept = milliseconds(lambda: state.patch_to(data))
    bar = f"<= {BAR_KEYS_MS:.0f} ms"
    peers = f"jsonpatch {jsonpatch_ms}, deepdiff {deepdiff_ms}"
    return [
        Row("diff of 1,000 keys, 4 changes", bar, peers, f"{ours:.2f} ms", ours <= BAR_KEYS_MS),
        Row("the same, from bytes kept", bar, "-", f"{kept:.2f} ms", kept <= BAR_KEYS_MS),
    ]


def airline_rows() -> list[Row]:
    """The 2.5 MB state with one record changed."""
    before, after = copy_of(airline_state()), copy_of(airline_state())
    one_record_changed(after, 0)
    decoded = milliseconds(lambda: diff(before, after), 5)
    first, data = encode(before), encode(after)
    once = milliseconds(lambda: EncodedState(first).patch_to(data), 5)
    state = EncodedState(first)
    patch, _ = state.patch_to(data)
    kept = milliseconds(lambda: state.patch_to(data))
    return [
        Row("diff of 2.5 MB states, decoded", "-", "-", f"{decoded:.1f} ms", None),
        Row("the same, from bytes: first time", "-", "-", f"{once:.1f} ms", None),
        Row("the same, from bytes kept", "-", "-", f"{kept:.2f} ms, {len(patch)} B", None),
    ]


def small_rows() -> list[Row]:
    """What a step of a small state costs, and applying one operation."""
    state = {"counter": 1, "messages": [{"role": "user", "content": f"{n}"} for n in range(12)]}
    before, after = encode(state), encode({**state, "counter": 2})
    encoded = EncodedState(before)
    found = milliseconds(lambda: [encoded.patch_to(after) for _ in range(1_000)])
    operations = [["set", ["counter"], 5]]
    applied = milliseconds(lambda: [apply(operations, state) for _ in range(APPLIED)])
    return [
        Row("diff of a 0.3 kB state", "-", "-", f"{found:.1f} us", None),
        Row("apply one operation", "-", "-", f"{applied / APPLIED * 1e3:.2f} us", None),
    ]


def trimming_row() -> Row:
    """Bytes a step of a context kept to its last messages, beside setting the list anew."""
    messages = [
        {"role": "tool", "content": f"result {number}: " + "word " * 95} for number in range(100)
    ]
    patches = sets = 0
    for step in range(TRIMMED_STEPS):
        before, after = messages[step : step + 12], messages[step + 2 : step + 14]
        patches += len(encode(diff({"messages": before}, {"messages": after})))
        sets += len(encode([["set", ["messages"], after]]))
    ours = patches / TRIMMED_STEPS / 1e3
    peer = f"without cut {sets / TRIMMED_STEPS / 1e3:.1f} kB"
    return Row("patch where a context is trimmed", "-", peer, f"{ours:.1f} kB", None)


def main() -> None:
    """Print the figures."""
    report([*keyed_rows(), *airline_rows(), *small_rows(), trimming_row()])


if __name__ == "__main__":
    main()
