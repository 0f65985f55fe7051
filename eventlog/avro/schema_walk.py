"""`SchemaWalk`: one walk over the types of a schema, compiling each named type once.

What a type is compiled to (a reader, a writer) is the subclass's; how types nest is the same.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

Compiled = TypeVar("Compiled")


class SchemaWalk(ABC, Generic[Compiled]):
    """Compiles the types of one schema.

    `named` gives the definitions by full name, as the canonical form writes them; `classes` the
    NamedTuple of each record; `by_hand` what is made for types that are not to be compiled.
    """

    def __init__(
        self,
        named: Mapping[str, Mapping[str, Any]],
        classes: Mapping[str, type[Any]],
        by_hand: Mapping[str, Compiled],
    ) -> None:
        self._named = named
        self._classes = classes
        self._made: dict[str, Compiled] = dict(by_hand)

    def compiled(self, definition: Any) -> Compiled:
        """What this type comes to."""
        if isinstance(definition, list):
            return self.union(definition)
        if isinstance(definition, str):
            primitive = self.primitive(definition)
            return self._of(definition) if primitive is None else primitive
        kind = definition["type"]
        if kind == "array":
            return self.array(self.compiled(definition["items"]))
        if kind == "map":
            return self.map(self.compiled(definition["values"]))
        return self._of(definition["name"])

    def _of(self, name: str) -> Compiled:
        if name not in self._made:
            definition = self._named[name]
            kind = definition["type"]
            if kind == "enum":
                self._made[name] = self.enum(definition["symbols"])
            elif kind == "fixed":
                self._made[name] = self.fixed(definition["size"])
            else:
                names = [field["name"] for field in definition["fields"]]
                fields = [self.compiled(field["type"]) for field in definition["fields"]]
                self._made[name] = self.record(self._classes[name], names, fields)
        return self._made[name]

    @abstractmethod
    def primitive(self, name: str) -> Compiled | None:
        """A primitive type; None where the name is not one."""

    @abstractmethod
    def array(self, items: Compiled) -> Compiled:
        """An array of `items`."""

    @abstractmethod
    def map(self, values: Compiled) -> Compiled:
        """A map to `values`."""

    @abstractmethod
    def enum(self, symbols: list[str]) -> Compiled:
        """An enum of these symbols."""

    @abstractmethod
    def fixed(self, size: int) -> Compiled:
        """Exactly `size` bytes."""

    @abstractmethod
    def record(self, cls: type[Any], names: list[str], fields: list[Compiled]) -> Compiled:
        """A record of `cls`; `names` and `fields` in the schema's order."""

    @abstractmethod
    def union(self, branches: list[Any]) -> Compiled:
        """A union of these definitions."""
