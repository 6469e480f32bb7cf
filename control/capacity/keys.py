"""Checked access to a model's configuration: a missing or absurd value is one clear sentence."""

from collections.abc import Mapping

from surgetank.control.capacity.units import CapacityError

_LARGEST = 10**9


class Keys:
    """A JSON object with typed reads. `where` begins every error."""

    def __init__(self, values: Mapping[str, object], where: str) -> None:
        self.values = values
        self.where = where

    def has(self, name: str) -> bool:
        """Whether the key is there and not null."""
        return self.values.get(name) is not None

    def optional(self, *names: str, least: int = 1) -> int | None:
        """The first of the keys that is there; None when none is."""
        for name in names:
            value = self.values.get(name)
            if value is None:
                continue
            if isinstance(value, float) and value.is_integer():
                value = int(value)
            if isinstance(value, bool) or not isinstance(value, int):
                raise self.wrong(name, value, "a whole number")
            if not least <= value <= _LARGEST:
                raise self.wrong(name, value, f"{least} to {_LARGEST}")
            return value
        return None

    def whole(self, *names: str, default: int | None = None, least: int = 1) -> int:
        """The first of the keys that is there, else the default; CapacityError without either."""
        value = self.optional(*names, least=least)
        if value is None:
            value = default
        if value is None:
            raise CapacityError(f"{self.where}: {' or '.join(names)} is missing")
        return value

    def flag(self, name: str, default: bool) -> bool:
        value = self.values.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.wrong(name, value, "true or false")
        return value

    def text(self, *names: str, default: str = "") -> str:
        for name in names:
            value = self.values.get(name)
            if value is not None:
                if not isinstance(value, str):
                    raise self.wrong(name, value, "text")
                return value
        return default

    def items(self, name: str) -> list[object] | None:
        """A list, or None when the key is absent or null."""
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, list):
            raise self.wrong(name, value, "a list")
        return value

    def section(self, name: str) -> "Keys | None":
        """An object inside the object, or None."""
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise self.wrong(name, value, "an object")
        return Keys(value, self.where)

    def wrong(self, name: str, value: object, allowed: str) -> CapacityError:
        """The error for a key that holds something else than allowed."""
        shown = repr(value)
        return CapacityError(f"{self.where}: {name} is {shown[:60]}; allowed: {allowed}")
