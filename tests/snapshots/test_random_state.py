"""Random generators as a value: the next draws are equal, in this process and in a fresh one."""

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from eventlog.canonical import decode, encode
from eventlog.errors import StateError
from snapshots.random_state import capture_random, reseeded, restore_random
from tests.support.sources import ROOT

FRESH = """
import random, sys
from pathlib import Path
from eventlog.canonical import decode, encode
from snapshots.random_state import restore_random
value = decode(Path("state").read_bytes())
own = random.Random(99)
generators = {"own": own}
try:
    import numpy
except ImportError:
    numpy = None
else:
    generators |= {
        "pcg": numpy.random.default_rng(), "sfc": numpy.random.Generator(numpy.random.SFC64()),
        "philox": numpy.random.Generator(numpy.random.Philox()),
        "legacy": numpy.random.RandomState(),
    }
restore_random(value, generators)
assert "torch" not in sys.modules
drawn = [random.random() for _ in range(100)] + [own.gauss(0, 1) for _ in range(100)]
drawn += [random.gauss(0, 1) for _ in range(3)]
if numpy is not None:
    drawn += [*numpy.random.random(100).tolist(), numpy.random.standard_normal()]
    for name in ("pcg", "sfc", "philox"):
        drawn += generators[name].integers(0, 9, 100, dtype="u4").tolist()
    drawn += [generators["legacy"].standard_normal() for _ in range(5)]
Path("drawn").write_bytes(encode(drawn))
"""


def without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another test's torch does not belong to these: its own are in tests/checkpoints."""
    monkeypatch.delitem(sys.modules, "torch", raising=False)


def test_a_fresh_process_draws_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Case D4 (trl #3247): seed 7, 13 draws, save, 100 draws of each generator."""
    without_torch(monkeypatch)
    random.seed(7)
    own = random.Random(7)
    generators: dict[str, Any] = {"own": own}
    drawn: list[Any] = [random.random() for _ in range(13)] + [own.random() for _ in range(13)]
    random.gauss(0, 1), own.gauss(0, 1)  # each keeps a second number for the next call
    numpy = pytest.importorskip("numpy", reason="numpy is not installed: its states not shown")
    numpy.random.seed(7)
    numpy.random.random(13)
    generators |= {
        "pcg": numpy.random.default_rng(7),
        "sfc": numpy.random.Generator(numpy.random.SFC64(7)),
        "philox": numpy.random.Generator(numpy.random.Philox(7)),
        "legacy": numpy.random.RandomState(7),
    }
    for name in ("pcg", "sfc", "philox"):
        generators[name].integers(0, 9, 13, dtype="u4")  # an odd number: half a word is kept
    numpy.random.standard_normal(), generators["legacy"].standard_normal()

    value = capture_random(generators)
    (tmp_path / "state").write_bytes(encode(value))
    assert value["numpy"]["has_gauss"] == 1  # type: ignore[index]
    assert encode(capture_random(generators)) == encode(value), "capturing draws nothing"

    drawn = [random.random() for _ in range(100)] + [own.gauss(0, 1) for _ in range(100)]
    drawn += [random.gauss(0, 1) for _ in range(3)]
    drawn += [*numpy.random.random(100).tolist(), numpy.random.standard_normal()]
    for name in ("pcg", "sfc", "philox"):
        drawn += generators[name].integers(0, 9, 100, dtype="u4").tolist()
    drawn += [generators["legacy"].standard_normal() for _ in range(5)]
    subprocess.run(
        [sys.executable, "-c", FRESH], cwd=tmp_path, check=True, timeout=100,
        env={"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert decode((tmp_path / "drawn").read_bytes()) == decode(encode(drawn))


def test_without_numpy_there_is_nothing_of_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    without_torch(monkeypatch)
    monkeypatch.delitem(sys.modules, "numpy", raising=False)
    value = capture_random()
    assert set(value) == {"format", "python", "generators"}
    first = random.random()
    restore_random(value)
    assert random.random() == first


def test_nothing_is_set_where_something_does_not_fit() -> None:
    numpy = pytest.importorskip("numpy", reason="numpy is not installed: its states not shown")
    own, pcg = random.Random(1), numpy.random.default_rng(1)
    named = {"own": own, "pcg": pcg}
    value: Any = capture_random(named)
    before = encode(capture_random(named))
    python = value["python"]
    faults: list[tuple[Any, Any, str]] = [
        (value, {"own": own}, "saved, not given: 'pcg'"),
        (value, {**named, "third": own}, "given, not saved: 'third'"),
        (value, {"own": pcg, "pcg": pcg}, "generator 'own' does not fit: saved is a random.Random"),
        (value, {"own": own, "pcg": numpy.random.Generator(numpy.random.MT19937())},
         "saved is a PCG64, given a MT19937"),
        ({**value, "python": [2, *python[1:]]}, named, "python does not fit"),
        ({**value, "python": [python[0], b"1", *python[2:]]}, named, "words of random.Random"),
        ({**value, "python": [*python[:2], 700, None]}, named, "python does not fit"),
        ({**value, "python": [*python[:3], 1]}, named, "python does not fit"),
        ({**value, "numpy": {**value["numpy"], "bit_generator": "PCG64"}}, named, "numpy"),
        ({**value, "numpy": {"bit_generator": "MT19937"}}, named, "numpy does not fit"),
        ({**value, "generators": {**value["generators"], "pcg": {"kind": "x"}}}, named, "saved is"),
        ({**value, "generators": {**value["generators"], "pcg": 3}}, named, "'pcg' does not fit"),
        ({**value, "more": 1}, named, "not a random state"),
        ({**value, "format": 2}, named, "not a random state"),
        ([], named, "not a random state"),
        ({**reseeded(1, 0), "seed": 1}, named, "not a random state"),
    ]  # fmt: skip
    for fault, generators, message in faults:
        with pytest.raises(StateError, match=message) as caught:
            restore_random(fault, generators)
        assert caught.value.hint
        assert encode(capture_random(named)) == before, message


@pytest.mark.parametrize("one", [random.SystemRandom(), 7, None, random])
def test_what_is_no_generator_of_known_kind(one: object) -> None:
    with pytest.raises(StateError, match="generator 'odd' is a"):
        capture_random({"odd": one})


def test_fresh_seeds_depend_on_the_seed_and_the_rank_alone() -> None:
    numpy = pytest.importorskip("numpy", reason="numpy is not installed: its states not shown")

    def draws(seed: int, rank: int) -> list[float]:
        named = {"own": random.Random(), "pcg": numpy.random.default_rng()}
        named["legacy"] = numpy.random.RandomState()
        restore_random(decode(encode(reseeded(seed, rank))), named)  # type: ignore[arg-type]
        return [
            random.random(), float(numpy.random.random()), named["own"].random(),
            float(named["pcg"].random()), float(named["legacy"].random_sample()),
        ]  # fmt: skip

    first = draws(3, 0)
    random.seed(99)
    numpy.random.seed(99)
    assert draws(3, 0) == first
    assert len({*first, *draws(3, 1), *draws(4, 0)}) == 15


def test_the_value_is_plain() -> None:
    """No ext of the canonical form: any reader of MessagePack, and weights_only, can load it."""

    def kinds(value: Any) -> set[type]:
        if isinstance(value, dict):
            return {dict}.union(*map(kinds, value), *map(kinds, value.values()))
        if isinstance(value, list):
            return {list}.union(*map(kinds, value))
        return {type(value)}

    value = capture_random({"own": random.Random(1)})
    assert kinds(value) <= {dict, list, str, int, float, bytes, type(None)}


@pytest.mark.parametrize("kind", ["PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64"])
@pytest.mark.parametrize("entropy", [1, 2**127 + 5, [3, 4, 5], None])
def test_children_of_a_numpy_generator_are_those_that_would_have_come(
    kind: str, entropy: Any
) -> None:
    """`spawn()` after a restore gave the first children again, or those of another seed."""
    numpy = pytest.importorskip("numpy", reason="numpy is not installed: its states not shown")
    made = getattr(numpy.random, kind)
    grown = numpy.random.Generator(made(numpy.random.SeedSequence(entropy).spawn(3)[2]))
    for owner in (numpy.random.Generator(made(entropy)), grown):
        owner.spawn(2)
        owner.random()
        value = decode(encode(capture_random({"g": owner})))
        expected = [child.random(3).tolist() for child in (*owner.spawn(2), owner)]
        assert isinstance(value, dict)
        fresh = numpy.random.Generator(made(7))
        for _ in range(2):  # a value that is restored twice
            restore_random(value, {"g": fresh})
            assert [one.random(3).tolist() for one in (*fresh.spawn(2), fresh)] == expected
        without = {key: one for key, one in value["generators"]["g"].items() if key != "seeds"}
        restore_random({**value, "generators": {"g": without}}, {"g": fresh})
        assert fresh.random(3).tolist() == expected[-1], "saved before children were kept"


def test_fresh_seeds_are_the_childrens_too() -> None:
    numpy = pytest.importorskip("numpy", reason="numpy is not installed: its states not shown")
    drawn = set()
    for rank in range(3):
        one = numpy.random.default_rng(1)
        restore_random(reseeded(5, rank), {"g": one})
        drawn |= {one.spawn(1)[0].random(), one.random()}
    assert len(drawn) == 6, "ranks have the same children"


def test_seeds_that_are_none_are_told_by_the_generators_name() -> None:
    numpy = pytest.importorskip("numpy", reason="numpy is not installed: its states not shown")
    value = capture_random({"g": numpy.random.default_rng(1)})
    assert isinstance(value["generators"], dict)
    for seeds in (5, {}, {**value["generators"]["g"]["seeds"], "pool_size": "x"}):
        odd = {"g": {**value["generators"]["g"], "seeds": seeds}}
        with pytest.raises(StateError, match="generator 'g' does not fit"):
            restore_random({**value, "generators": odd}, {"g": numpy.random.default_rng(1)})
