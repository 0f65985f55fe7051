"""Codecs made for a user's class: Enums, namedtuples, dataclasses and pydantic models.

Fields are stored by name, and brought back without running `__init__`, `__new__` overrides or
validators: the restored value is the recorded one, not a new one.
"""

import dataclasses
import enum
import functools
import sys
from collections.abc import Iterable
from typing import Any, cast

from eventlog.values.extension_values import Refusal
from eventlog.values.type_codecs import TypeCodec, no_attributes


def class_codec(cls: type, name: str, version: int) -> TypeCodec | None:
    """The codec for a class whose fields can be read off it; None for any other class."""
    if issubclass(cls, enum.Enum):
        return _enum_codec(cls, name, version)
    fields = getattr(cls, "_fields", None)
    if issubclass(cls, tuple) and isinstance(fields, tuple):
        return _namedtuple_codec(cls, fields, name, version)
    if dataclasses.is_dataclass(cls):
        return _dataclass_codec(cls, name, version)
    pydantic = sys.modules.get("pydantic")
    if pydantic is not None and issubclass(cls, pydantic.BaseModel):
        return _model_codec(cls, name, version)
    return None


def _enum_codec(cls: type[enum.Enum], name: str, version: int) -> TypeCodec:
    members = cls.__members__

    def to_name(member: enum.Enum) -> object:
        if members.get(member.name) is not member:
            raise Refusal("is not a member by name", "store its value")
        return member.name

    def from_name(value: object) -> object:
        if type(value) is not str or value not in members:
            raise ValueError(f"{value!r} is not a member of {cls.__qualname__}")
        return members[value]

    if not issubclass(cls, enum.Flag):
        return TypeCodec(cls, name, version, to_name, from_name, mutable=False)

    # Members of a Flag combine, and a combination has no name.
    def from_bits(value: object) -> object:
        if type(value) is not int:
            raise TypeError("not an int")
        return cls(value)

    return TypeCodec(cls, name, version, lambda flag: int(flag.value), from_bits, mutable=False)


def _namedtuple_codec(
    cls: type[tuple[Any, ...]], fields: tuple[str, ...], name: str, version: int
) -> TypeCodec:
    def to_fields(value: tuple[Any, ...]) -> object:
        no_attributes(value)
        return dict(zip(fields, value, strict=True))

    def from_fields(value: object) -> object:
        return tuple.__new__(cls, _field_values(cls, value, fields))

    return TypeCodec(cls, name, version, to_fields, from_fields, mutable=False)


def _dataclass_codec(cls: type, name: str, version: int) -> TypeCodec:
    names = tuple(field.name for field in dataclasses.fields(cls))
    # A cached property is a value that can be computed again.
    ignored = frozenset(
        key
        for base in cls.__mro__
        for key, member in vars(base).items()
        if isinstance(member, functools.cached_property)
    )

    def to_fields(value: Any) -> object:
        extra = getattr(value, "__dict__", {}).keys() - ignored - set(names)
        missing = [field for field in names if not hasattr(value, field)]
        if extra or missing:
            what = sorted(map(str, extra)) or missing
            raise Refusal(
                f"has {'attributes beyond' if extra else 'no value for'} its fields: {what}",
                "make them fields, or give register_type a to_value and a from_value",
            )
        return {field: getattr(value, field) for field in names}

    def from_fields(value: object) -> object:
        instance: object = object.__new__(cls)
        for field, item in zip(names, _field_values(cls, value, names), strict=True):
            object.__setattr__(instance, field, item)
        return instance

    parameters = getattr(cls, "__dataclass_params__", None)
    mutable = not getattr(parameters, "frozen", False)
    return TypeCodec(cls, name, version, to_fields, from_fields, mutable=mutable)


def _model_codec(cls: Any, name: str, version: int) -> TypeCodec:
    """A pydantic model: its fields, which of them were set, extra fields, private attributes."""

    def to_parts(value: Any) -> object:
        private = value.__pydantic_private__
        extra = value.__pydantic_extra__
        return [
            dict(value.__dict__),
            sorted(value.__pydantic_fields_set__),
            None if extra is None else dict(extra),
            None if private is None else dict(private),
        ]

    def from_parts(value: Any) -> object:
        fields, fields_set, extra, private = value
        known = cls.model_fields.keys()
        if type(fields) is not dict or known - fields.keys():
            raise ValueError(f"the fields stored are not those of {cls.__qualname__}")
        instance = cls.__new__(cls)
        # Pydantic's own protocol for copies and pickles: no validator and no __init__ runs.
        instance.__setstate__(
            {
                "__dict__": dict(fields),
                "__pydantic_fields_set__": set(fields_set),
                "__pydantic_extra__": extra,
                "__pydantic_private__": private,
            }
        )
        return instance

    mutable = not cls.model_config.get("frozen", False)
    return TypeCodec(cls, name, version, to_parts, from_parts, mutable=mutable)


def _field_values(cls: type, value: object, names: Iterable[str]) -> list[object]:
    names = tuple(names)
    if type(value) is not dict or tuple(value) != names:
        stored = list(value) if type(value) is dict else value
        raise ValueError(
            f"{cls.__qualname__} has the fields {list(names)}, stored are {stored!r}; "
            "register it with a new version, a to_value and a from_value that reads both"
        )
    return list(cast("dict[str, object]", value).values())
