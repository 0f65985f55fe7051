"""Arrays, array scalars and tensors: the same bytes for the same numbers, and back."""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from eventlog import canonical
from eventlog.canonical import ArrayValue, restore
from eventlog.errors import CodecMissingError, ValueNotEncodableError

ARRAYS: list[Any] = [
    np.arange(6, dtype="<f8").reshape(2, 3),
    np.arange(6, dtype="<f4"),
    np.arange(6, dtype="<f2"),
    np.array(3.5),
    np.array([], dtype="<i8"),
    np.zeros((2, 0, 3), dtype="|u1"),
    np.array([True, False]),
    np.array([1 + 2j], dtype="<c8"),
    np.array(["a", "łż", ""]),
    np.array([b"a\x00b", b""]),
    np.array(["2024-05-01T10:30", "NaT"], dtype="<M8[ms]"),
    np.array([5, -5], dtype="<m8[25s]"),
    np.array([np.nan, -0.0, np.inf]),
    np.array([0xFFF8000000000001], dtype="<u8").view("<f8"),
]
SCALARS: list[Any] = [
    np.float64(1.5), np.float32(0.1), np.float16(2), np.int64(-3), np.uint8(255), np.bool_(True),
    np.complex128(1 - 2j), np.str_(""), np.str_("a\x00"), np.str_("ł\ud800"), np.bytes_(b"a\x00"),
    np.datetime64("2024-05-01"), np.datetime64("NaT", "s"), np.timedelta64(3, "h"),
    np.float64("nan"),
]  # fmt: skip


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: f"{array.dtype}{array.shape}")
def test_arrays_come_back_bit_for_bit(array: Any) -> None:
    data = canonical.encode({"a": array})
    closed = canonical.decode(data, opaque=True)
    assert isinstance(closed["a"], ArrayValue)  # type: ignore[index]
    assert canonical.encode(closed) == data
    restored: Any = canonical.decode(data)["a"]  # type: ignore[index]
    assert type(restored) is np.ndarray
    assert restored.dtype == array.dtype
    assert restored.shape == array.shape
    assert restored.tobytes() == array.tobytes()
    assert restored.flags.owndata
    assert restored.flags.writeable


@pytest.mark.parametrize("scalar", SCALARS, ids=repr)
def test_scalars_come_back_as_scalars(scalar: Any) -> None:
    data = canonical.encode([scalar])
    (restored,) = canonical.decode(data)  # type: ignore[misc]
    assert type(restored) is type(scalar)
    assert canonical.encode([restored]) == data
    if scalar == scalar:
        assert restored == scalar
    assert canonical.encode(scalar) != canonical.encode(np.asarray(scalar))


def test_layout_and_byte_order_are_not_part_of_the_value() -> None:
    array = np.arange(12, dtype="<i4").reshape(3, 4)
    same = [
        array.astype(">i4"),
        np.asfortranarray(array),
        array[::-1][::-1],
        np.tile(array, 2)[:, :4],
    ]
    assert {canonical.encode(other) for other in same} == {canonical.encode(array)}
    assert canonical.encode(np.array([1.5]).astype(">f8")[0]) == canonical.encode(np.float64(1.5))
    for other in (array.astype("<i8"), array.T, array.tolist(), array.reshape(4, 3)):
        assert canonical.encode(other) != canonical.encode(array)


@pytest.mark.parametrize(
    "value",
    [
        np.array([object()]),
        np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]),
        np.array([1], dtype=np.longdouble),
        np.longdouble(1),
        np.void(b"ab"),
        np.ma.array([1, 2]),
        np.array([1]).view(np.recarray),
        np.random.default_rng(1),
        np.dtype("<f8"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_refused(value: Any) -> None:
    with pytest.raises(ValueNotEncodableError) as caught:
        canonical.encode({"a": [value]})
    assert caught.value.path == "$.a[0]"


def test_scalars_are_keys_unless_nan() -> None:
    table = {np.int64(3): "a", np.str_("k"): "b", np.float32(0.5): {np.datetime64("2024-01-01")}}
    assert canonical.decode(canonical.encode(table)) == table
    for nan in (
        np.float64("nan"),
        np.float32("nan"),
        np.datetime64("NaT", "s"),
        np.complex64("nan"),
    ):
        with pytest.raises(ValueNotEncodableError, match="NaN"):
            canonical.encode({nan: 1})
        with pytest.raises(ValueNotEncodableError, match="NaN"):
            canonical.encode({canonical.decode(canonical.encode(nan), opaque=True): 1})


def test_without_numpy_arrays_stay_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    data = canonical.encode({"a": [np.float64(1)]})
    monkeypatch.setitem(sys.modules, "numpy", None)
    closed = canonical.decode(data)
    assert closed == {"a": [ArrayValue("scalar", "<f8", (), np.float64(1).tobytes())]}
    assert canonical.encode(closed) == data
    with pytest.raises(CodecMissingError, match="needs numpy") as caught:
        restore(closed)
    assert caught.value.path == "$.a[0]"
    assert "install" in caught.value.hint


def test_without_torch_tensors_stay_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    closed = [ArrayValue("tensor", "bfloat16", (2,), b"\x80?\x00\xc0")]
    assert canonical.decode(canonical.encode(closed)) == closed
    with pytest.raises(CodecMissingError, match="needs torch"):
        restore(closed)


def test_tensors_come_back() -> None:
    torch = pytest.importorskip("torch")
    for tensor in (
        torch.arange(6, dtype=torch.float32).reshape(2, 3).T,
        torch.tensor(1.5, dtype=torch.bfloat16),
        torch.empty((0, 2), dtype=torch.int64),
        torch.tensor([1 + 2j]).conj(),
        torch.tensor([True, False]),
    ):
        data = canonical.encode([tensor])
        (restored,) = canonical.decode(data)  # type: ignore[misc]
        assert restored.dtype == tensor.dtype
        assert torch.equal(restored, tensor)
        assert canonical.encode([restored]) == data
    for refused in (torch.ones(1, requires_grad=True), torch.nn.Parameter(torch.ones(1))):
        with pytest.raises(ValueNotEncodableError):
            canonical.encode(refused)


def test_canonical_values_never_import_numpy_or_torch() -> None:
    script = (
        "import sys; from eventlog import canonical, json_form; import datetime\n"
        "state = {'a': [1, (2,), {3}, datetime.datetime(2024, 1, 1), {4: 5}], 'b': object}\n"
        "try: canonical.encode(state)\n"
        "except Exception as error: assert error.path == '$.b', error\n"
        "state.pop('b'); canonical.decode(canonical.encode(state)); json_form.dumps(state)\n"
        "canonical.find_shared(state)\n"
        "assert not {'numpy', 'torch', 'pydantic'} & set(sys.modules), sorted(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
