"""Live numpy arrays, numpy scalars and CPU tensors as `ArrayValue`, and back.

numpy and torch are looked up where a value of theirs is met, never imported to encode: a process
that never holds an array never pays for them. Byte order and memory layout are not kept, the
bits of NaN are.
"""

import ctypes
import math
import sys
from typing import Any

from eventlog.values.extension_values import TORCH_ITEM_BYTES, Refusal, item_bytes
from eventlog.values.opaque_values import ArrayValue


def array_value_of(value: object) -> ArrayValue | None:
    """The closed form of a numpy or torch value; None for any other value.

    Raises `Refusal` for structured, object and longdouble dtypes, subclasses, tensors of other
    devices and tensors that require grad.
    """
    root = type(value).__module__.partition(".")[0]
    if root == "numpy":
        return _numpy_value(sys.modules.get("numpy"), value)
    if root == "torch":
        return _tensor_value(sys.modules.get("torch"), value)
    return None


def _numpy_value(numpy: Any, value: Any) -> ArrayValue | None:
    if numpy is None:
        return None
    if isinstance(value, numpy.generic):
        if value.dtype.type is not type(value):
            raise Refusal("is a subclass of a numpy scalar", "convert it to a plain scalar")
        # Its own text or bytes: an array of them, and `str(value)`, would drop NULs at the end.
        if isinstance(value, numpy.str_):
            data = value[:].encode("utf-32-le", "surrogatepass")
            return ArrayValue("scalar", f"<U{len(data) // 4}", (), data)
        if isinstance(value, numpy.bytes_):
            return ArrayValue("scalar", f"|S{len(value)}", (), bytes(value))
        return _numpy_array_value("scalar", numpy.asarray(value))
    if type(value) is numpy.ndarray:
        if value.dtype.kind in "SU" and value.dtype.itemsize == 0:
            raise Refusal("has a dtype of no width", "convert it to a list")
        return _numpy_array_value("array", value)
    if isinstance(value, numpy.ndarray):
        raise Refusal("is a subclass of numpy.ndarray", "store numpy.asarray(value)")
    return None


def _numpy_array_value(family: str, array: Any) -> ArrayValue:
    hint = "store a list, or an array of a bool, int, float, complex, text or time dtype"
    dtype = array.dtype
    if dtype.kind not in "biufcSUMm":
        raise Refusal(f"has the dtype {dtype}", hint)
    little = dtype.newbyteorder("<")
    try:
        item_bytes(family, little.str)
    except ValueError as error:
        raise Refusal(f"has the dtype {dtype}", hint) from error
    data = (array if dtype == little else array.astype(little)).tobytes()
    return ArrayValue(family, little.str, tuple(map(int, array.shape)), data)


def _tensor_value(torch: Any, value: Any) -> ArrayValue | None:
    if torch is None or not isinstance(value, torch.Tensor):
        return None
    if type(value) is not torch.Tensor:
        raise Refusal("is a subclass of torch.Tensor", "store value.detach() as a plain tensor")
    if value.requires_grad:
        raise Refusal("requires grad", "store value.detach()")
    if value.device.type != "cpu":
        raise Refusal(f"is on the device {value.device}", "store value.cpu()")
    dtype = str(value.dtype).removeprefix("torch.")
    if value.layout is not torch.strided or value.is_quantized or dtype not in TORCH_ITEM_BYTES:
        raise Refusal(f"has the dtype {value.dtype} and layout {value.layout}", "convert it first")
    plain = value.resolve_conj().resolve_neg().contiguous()
    size = plain.numel() * TORCH_ITEM_BYTES[dtype]
    data = ctypes.string_at(plain.data_ptr(), size) if size else b""
    if sys.byteorder == "big":
        raise Refusal("is on a big-endian machine", "store a numpy array instead")
    return ArrayValue("tensor", dtype, tuple(map(int, value.shape)), data)


def open_array_value(value: ArrayValue) -> object:
    """The live array, scalar or tensor; it owns its memory and can be written.

    Raises ImportError where numpy or torch is not installed, ValueError where the data is not of
    its dtype.
    """
    if value.family == "tensor":
        return _open_tensor(value)
    import numpy

    if value.family == "scalar":
        if value.dtype.startswith("<U"):
            return numpy.str_(value.data.decode("utf-32-le", "surrogatepass"))
        if value.dtype.startswith("|S"):
            return numpy.bytes_(value.data)
        return numpy.frombuffer(value.data, numpy.dtype(value.dtype))[0]
    dtype = numpy.dtype(value.dtype)
    if not value.data:
        return numpy.empty(value.shape, dtype)
    return numpy.frombuffer(value.data, dtype).reshape(value.shape).copy()


def _open_tensor(value: ArrayValue) -> object:
    import torch

    dtype = getattr(torch, value.dtype, None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"this torch has no dtype {value.dtype}")
    with torch.inference_mode(False):  # what is made in inference mode can be changed only there
        if math.prod(value.shape) == 0:
            return torch.empty(value.shape, dtype=dtype, device="cpu")
        return torch.frombuffer(bytearray(value.data), dtype=dtype).reshape(value.shape).clone()


def is_array(value: object) -> bool:
    """Whether the value is a live array or tensor: memory that can be changed."""
    root = type(value).__module__.partition(".")[0]
    module: Any = sys.modules.get(root)
    if module is None or root not in ("numpy", "torch"):
        return False
    return isinstance(value, module.ndarray if root == "numpy" else module.Tensor)
