"""Registered types: the package's own, users' classes, names that never import, restoring."""

import builtins
import collections
import dataclasses
import datetime as dt
import enum
import functools
import importlib
import random
import sys
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from typing import Any, NamedTuple

import pydantic
import pytest

from eventlog import canonical
from eventlog.canonical import Registered, register_type, restore
from eventlog.errors import CodecMissingError, ConfigError, ValueNotEncodableError
from eventlog.values import registered_types


@pytest.fixture(autouse=True)
def _registry_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registered_types, "_by_type", dict(registered_types._by_type))
    monkeypatch.setattr(registered_types, "_by_name", dict(registered_types._by_name))


def there_and_back(value: Any) -> Any:
    """`value` restored from its bytes; the closed form gives the same bytes."""
    data = canonical.encode(value)
    closed = canonical.decode(data, opaque=True)
    assert canonical.encode(closed) == data
    restored = restore(closed)
    assert canonical.encode(restored) == data
    assert type(restored) is type(value)
    assert restored is not value
    return restored


class Colour(enum.Enum):
    RED = "red"
    ALSO_RED = "red"  # noqa: PIE796  (an alias is the case)
    BLUE = object()


class Right(enum.Flag):
    READ = 1
    WRITE = 2


class Level(enum.IntEnum):
    LOW = 1


class Mode(enum.StrEnum):
    FAST = "fast"


class Cell(NamedTuple):
    row: int
    column: object = None


@dataclasses.dataclass
class Order:
    id: str
    items: list[str] = dataclasses.field(default_factory=list)
    total: float = dataclasses.field(init=False, default=0.0)

    def __post_init__(self) -> None:
        self.total = 1.0

    @functools.cached_property
    def size(self) -> int:
        return len(self.items)


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    x: int
    y: float


class Profile(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    name: str
    age: int = 3
    _secret: str = pydantic.PrivateAttr(default="s")


class Grid:
    """A class of the user's own, with functions."""

    def __init__(self, rows: list[list[int]]) -> None:
        self.rows = rows


def test_ordered_dict_keeps_the_order_that_was_moved() -> None:
    value = collections.OrderedDict(a=1, b=2, c=[3])
    value.move_to_end("a")
    assert list(there_and_back(value)) == ["b", "c", "a"]


@pytest.mark.parametrize("factory", [None, list, dict, set, int, float, str, collections.Counter])
def test_defaultdict_makes_the_same_defaults(factory: Any) -> None:
    restored = there_and_back(collections.defaultdict(factory, {1: "a"}))
    assert restored.default_factory is factory
    assert restored == {1: "a"}


def test_deque_keeps_its_bound() -> None:
    restored = there_and_back(collections.deque([1, [2], (3,)], maxlen=3))
    assert restored.maxlen == 3
    assert list(restored) == [1, [2], (3,)]
    assert there_and_back(collections.deque()).maxlen is None


def test_counter() -> None:
    assert there_and_back(collections.Counter("abca")) == {"a": 2, "b": 1, "c": 1}


@pytest.mark.parametrize("text", ["", ".", "/", "a/b", "../x", "a//b", "ł/\udcff"])
@pytest.mark.parametrize("kind", [PurePosixPath, PureWindowsPath, PurePath, Path])
def test_paths(kind: type[PurePath], text: str) -> None:
    assert there_and_back(kind(text)) == kind(text)


def test_random_generator_goes_on_as_the_live_one() -> None:
    live = random.Random(7)
    live.gauss(0, 1)
    restored = there_and_back(live)
    assert [restored.random() for _ in range(700)] == [live.random() for _ in range(700)]
    assert restored.gauss(0, 1) == live.gauss(0, 1)
    assert restored.getstate() == live.getstate()


def test_a_draw_changes_little_of_a_generators_bytes() -> None:
    generator = random.Random(7)
    generator.random()  # the first draw makes all its words
    before = canonical.decode(canonical.encode(generator), opaque=True)
    generator.random()
    after = canonical.decode(canonical.encode(generator), opaque=True)
    assert isinstance(before, Registered)
    assert isinstance(after, Registered)
    assert before.value[0] == after.value[0]  # type: ignore[index]
    assert before.value[1] != after.value[1]  # type: ignore[index]


def test_enum_members_are_stored_by_name() -> None:
    register_type(Colour, "t.colour")
    register_type(Level, "t.level")
    register_type(Mode, "t.mode")
    register_type(Right, "t.right")
    value = [Colour.RED, Colour.ALSO_RED, Colour.BLUE, Level.LOW, Mode.FAST, Right.READ, Right(0)]
    value += [Right.READ | Right.WRITE]
    closed = canonical.decode(canonical.encode(value), opaque=True)
    assert [part.value for part in closed] == [  # type: ignore[attr-defined]
        *("RED", "RED", "BLUE", "LOW", "FAST", 1, 0, 3)
    ]
    assert canonical.decode(canonical.encode(value)) == value
    table = {Colour.RED: 1, Level.LOW: 2, Mode.FAST: {Right.WRITE}}
    assert canonical.decode(canonical.encode(table)) == table


def test_namedtuple() -> None:
    register_type(Cell, "t.cell")
    assert there_and_back(Cell(1, Cell(2))) == Cell(1, Cell(2))
    assert canonical.decode(canonical.encode({Cell(1): 2})) == {Cell(1): 2}


def test_dataclass_is_restored_without_running_its_code() -> None:
    register_type(Order, "t.order")
    register_type(Place, "t.place")
    order = Order("a", ["x"])
    order.total = 7.5
    assert order.size == 1
    restored = there_and_back(order)
    assert restored == order
    assert restored.total == 7.5
    assert there_and_back(Place(1, -0.0)) == Place(1, 0.0)
    assert canonical.decode(canonical.encode({Place(1, 2.0): 3})) == {Place(1, 2.0): 3}
    with pytest.raises(ValueNotEncodableError, match="NaN"):
        canonical.encode({Place(1, float("nan"))})


def test_attributes_that_would_be_lost_are_refused() -> None:
    register_type(Order, "t.order")
    order = Order("a")
    order.note = "x"  # type: ignore[attr-defined]
    ordered = collections.OrderedDict(a=1)
    ordered.note = "x"  # type: ignore[attr-defined]
    counter = collections.Counter("a")
    counter.note = "x"  # type: ignore[attr-defined]
    generator = random.Random(1)
    generator.note = "x"  # type: ignore[attr-defined]
    for value, why in ((order, "note"), (ordered, "note"), (counter, "note"), (generator, "own")):
        with pytest.raises(ValueNotEncodableError, match=why):
            canonical.encode([value])
    bare = object.__new__(Order)
    bare.id = "a"
    with pytest.raises(ValueNotEncodableError, match="no value for its fields"):
        canonical.encode(bare)


def test_pydantic_model_keeps_fields_set_extra_and_private() -> None:
    register_type(Profile, "t.profile")
    profile = Profile(name="a", more=[1, 2])  # type: ignore[call-arg]
    profile._secret = "changed"
    restored = there_and_back(profile)
    assert restored == profile
    assert restored.model_fields_set == {"name", "more"}
    assert restored._secret == "changed"
    assert restored.model_extra == {"more": [1, 2]}
    unchecked = Profile.model_construct(name=5)
    assert there_and_back(unchecked).name == 5  # type: ignore[comparison-overlap]


def test_class_with_functions() -> None:
    register_type(Grid, "t.grid", to_value=lambda grid: grid.rows, from_value=Grid)
    assert there_and_back(Grid([[1, 2], [3]])).rows == [[1, 2], [3]]


def test_bytearray_can_be_registered() -> None:
    register_type(bytearray, "t.bytes", to_value=bytes, from_value=bytearray)
    assert there_and_back({"a": bytearray(b"xy"), "b": b"xy"}) == {
        "a": bytearray(b"xy"),
        "b": b"xy",
    }


def test_unregistered_classes_are_refused_with_the_line_that_registers_them() -> None:
    for value in (Colour.RED, Level.LOW, Cell(1), Order("a"), Profile(name="a")):
        with pytest.raises(ValueNotEncodableError) as caught:
            canonical.encode({"a": value})
        assert f"register_type({type(value).__name__}, " in caught.value.hint
        assert caught.value.path == "$.a"


def test_a_subclass_needs_its_own_registration() -> None:
    class Wider(Cell):
        pass

    register_type(Cell, "t.cell")
    with pytest.raises(ValueNotEncodableError):
        canonical.encode(Wider(1))
    register_type(Wider, "t.wider")
    assert there_and_back(Wider(1, 2)) == Wider(1, 2)


def test_values_without_a_registration_stay_closed() -> None:
    register_type(Colour, "t.colour")
    register_type(Order, "t.order")
    data = canonical.encode({"c": [Colour.RED], "o": Order("a", ["x"])})
    registered_types._by_name.clear()
    closed = canonical.decode(data)
    assert closed["c"] == [Registered("t.colour", 1, "RED")]  # type: ignore[index]
    assert canonical.encode(closed) == data
    with pytest.raises(CodecMissingError) as caught:
        restore(closed)
    assert caught.value.name == "t.colour"
    assert caught.value.path == "$.c[0]"
    assert "register_type" in caught.value.hint


def test_opaque_never_opens_what_is_registered() -> None:
    register_type(Colour, "t.colour")
    value = {"d": collections.deque([Colour.RED]), "r": random.Random(1), "t": (1, {2})}
    closed = canonical.decode(canonical.encode(value), opaque=True)
    assert closed["d"] == Registered("steplog.deque", 1, [None, [Registered("t.colour", 1, "RED")]])  # type: ignore[index]
    assert closed["t"] == (1, {2})  # type: ignore[index]


def test_another_version_stays_closed() -> None:
    register_type(Cell, "t.cell", version=1)
    data = canonical.encode(Cell(1))
    register_type(Cell, "t.cell", version=2)
    assert canonical.decode(data) == Registered("t.cell", 1, {"row": 1, "column": None})
    with pytest.raises(CodecMissingError, match=r"stored in version 1, registered is 2"):
        restore(canonical.decode(data))


@pytest.mark.parametrize(
    ("name", "stored", "why"),
    [
        ("t.colour", "GREEN", "not a member"),
        ("t.colour", 5, "not a member"),
        ("t.right", 99, "Right"),
        ("t.right", "READ", "not an int"),
        ("t.cell", {"row": 1}, "has the fields"),
        ("t.cell", {"column": 1, "row": 1}, "has the fields"),
        ("t.cell", [1, 2], "has the fields"),
        ("t.order", {"id": "a"}, "has the fields"),
        ("t.profile", [{}, [], None, None], "fields stored"),
        ("t.profile", 5, "cannot be built"),
        ("steplog.deque", 5, "cannot be built"),
        ("steplog.deque", [1, [1, 2]], "more items"),
        ("steplog.deque", [None, "ab"], "not a list"),
        ("steplog.default_dict", ["os.system", {}], "KeyError"),
        ("steplog.default_dict", ["list", []], "not a dict"),
        ("steplog.ordered_dict", [[1, 2]], "not a dict"),
        ("steplog.counter", ["a"], "not a dict"),
        ("steplog.pure_posix_path", 5, "not a str"),
        ("steplog.random", [b"", 0, None], "not a state"),
        ("steplog.random", [bytes(2496), 625, None], "not a state"),
        ("steplog.random", [bytes(2496), 1, "x"], "not a state"),
        ("steplog.random", [bytes(2495), 1, None], "cannot be built"),
    ],
)
def test_values_a_codec_never_gives_stay_closed(name: str, stored: object, why: str) -> None:
    register_type(Colour, "t.colour")
    register_type(Right, "t.right")
    register_type(Cell, "t.cell")
    register_type(Order, "t.order")
    register_type(Profile, "t.profile")
    closed = Registered(name, 1, stored)
    data = canonical.encode([closed])
    assert canonical.decode(data) == [closed]
    with pytest.raises(CodecMissingError, match=why) as caught:
        restore([closed])
    assert caught.value.path == "$[0]"


def test_values_that_a_codec_would_change_stay_closed() -> None:
    changed = Registered("steplog.pure_posix_path", 1, "a//b")  # its codec makes a/b of it
    assert canonical.decode(canonical.encode({"p": changed})) == {"p": changed}


def test_closed_keys_that_no_dict_can_hold_once_live() -> None:
    register_type(Grid, "t.grid", to_value=lambda grid: grid.rows, from_value=lambda rows: rows)
    value = {Registered("t.grid", 1, []): 1}
    assert canonical.decode(canonical.encode(value)) == value
    with pytest.raises(CodecMissingError, match="has a key that is none"):
        restore(value)
    register_type(Grid, "t.grid", to_value=lambda grid: grid.rows, from_value=lambda _: "same")
    with pytest.raises(CodecMissingError, match="two keys that are equal"):
        restore({Registered("t.grid", 1, [1]): 1, Registered("t.grid", 1, [2]): 2})


def test_stored_name_never_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_import(name: str, *_: object, **__: object) -> object:
        raise AssertionError(f"imported {name}")

    names = ["os.system", "builtins.eval", "antigravity", "steplog.none", "this"]
    data = canonical.encode([Registered(name, 1, ["echo"]) for name in names])
    before = set(sys.modules)
    with monkeypatch.context() as patched:
        patched.setattr(importlib, "import_module", no_import)
        patched.setattr(builtins, "__import__", no_import)
        values = canonical.decode(data)
        with pytest.raises(CodecMissingError):
            restore(values)
    assert set(sys.modules) == before


def test_restored_state_shares_nothing_with_what_was_given() -> None:
    closed = canonical.decode(
        canonical.encode({"a": [1, {"b": [2]}], "d": collections.deque([[3]])})
    )
    restored: Any = restore(closed)
    restored["a"][1]["b"].append(9)
    assert closed["a"] == [1, {"b": [2]}]  # type: ignore[index]


@pytest.mark.parametrize(
    "register",
    [
        lambda: register_type(dict, "t.dict", to_value=dict, from_value=dict),
        lambda: register_type(int, "t.int"),
        lambda: register_type(dt.datetime, "t.datetime"),
        lambda: register_type(collections.deque, "t.deque", to_value=list, from_value=list),
        lambda: register_type(Cell, "steplog.cell"),
        lambda: register_type(Cell, ""),
        lambda: register_type(Cell, "naïve"),
        lambda: register_type(Cell, "a\n"),
        lambda: register_type(Cell, "t.cell", version=-1),
        lambda: register_type(Cell, "t.cell", version=True),
        lambda: register_type(Cell, "t.cell", to_value=list),
        lambda: register_type(Grid, "t.grid"),
        lambda: register_type(Cell(1), "t.cell"),  # type: ignore[arg-type]
        lambda: (register_type(Cell, "t.taken"), register_type(Colour, "t.taken")),
    ],
)
def test_registrations_that_cannot_be(register: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        register()
    assert caught.value.hint


def test_registering_again_replaces() -> None:
    def define() -> type:
        class Again(enum.Enum):
            A = 1

        return Again

    first, second = define(), define()
    assert register_type(first, "t.again") is first
    register_type(second, "t.again")  # the cell of a notebook, run again
    assert canonical.decode(canonical.encode(second.A)) is second.A  # type: ignore[attr-defined]
    register_type(Cell, "t.one")
    register_type(Cell, "t.two")
    assert canonical.decode(canonical.encode(Cell(1))) == Cell(1)
    assert registered_types.registered_version("t.one") is None
