"""A config.json read strictly: every figure is checked and bounded where it is read, and a refusal names its key."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.checkpoints.tensors import CheckpointError

MAX_LAYERS = 1_000
MAX_DEPTH = 1_000
MAX_DIMENSION = 2**40
"""Of a stack, of a tower beside it, of a matrix: far above any model, and small enough for what is built from them."""

MAX_SHOWN = 40
"""Characters of a client's value in an error."""


@dataclass(frozen=True, slots=True)
class Fields:
    """The keys of a config; one that is absent or null is looked up in ``defaults``, its class's values.

    Configs of composite models leave out whatever equals the default of a part's class, so those defaults are facts
    about the checkpoint. ``where`` is the path of a nested config and ends in a dot.
    """

    values: Mapping[str, Any]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    where: str = ""

    def find(self, *keys: str) -> Any:
        """The value under the first of the spellings that has one, else the default, else None."""
        for source in (self.values, self.defaults):
            for key in keys:
                if source.get(key) is not None:
                    return source[key]
        return None

    def gives(self, key: str) -> bool:
        """Whether the config has the key, be it null."""
        return key in self.values

    def whole(self, *keys: str, default: int | None = None, least: int = 1, most: int = MAX_DIMENSION) -> int:
        """A whole number between ``least`` and ``most``. Raises CheckpointError, without a default also if missing."""
        value = self.find(*keys)
        if value is None and default is not None:
            return default
        if value is None:
            raise self.wrong(keys[0], "is missing")
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.wrong(keys[0], f"is {_short(value)}, not a whole number")
        if not least <= value <= most:
            raise self.wrong(keys[0], f"is {_short(value)}, not within {least} .. {most}")
        return value

    def optional(self, *keys: str) -> int | None:
        """A positive whole number; None where it is absent, null or 0, which configs use alike for "not here"."""
        return self.whole(*keys, default=0, least=0) or None

    def layers(self, *keys: str, most: int = MAX_LAYERS) -> int:
        """A number of layers. Raises CheckpointError."""
        return self.whole(*keys, most=most)

    def flag(self, key: str, default: bool = False) -> bool:  # noqa: FBT001, FBT002 a key's name says which
        """A boolean. Raises CheckpointError."""
        value = self.find(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.wrong(key, f"is {_short(value)}, not true or false")
        return value

    def word(self, key: str, default: str = "") -> str:
        """A string. Raises CheckpointError."""
        value = self.find(key)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self.wrong(key, f"is {_short(value)}, not a string")
        return value

    def share_of(self, key: str, default: float) -> float:
        """A share between 0 and 1. Raises CheckpointError."""
        value = self.find(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise self.wrong(key, f"is {_short(value)}, not within 0 .. 1")
        return value

    def items(self, key: str, kind: type, length: int | None = None) -> tuple[Any, ...] | None:
        """A list of ``kind``, of that length where one is given; None where there is none. Raises CheckpointError."""
        value = self.find(key)
        if value is None:
            return None
        if not isinstance(value, Sequence) or isinstance(value, str):
            raise self.wrong(key, f"is {_short(value)}, not a list")
        if any(not isinstance(item, kind) or (kind is int and isinstance(item, bool)) for item in value):
            raise self.wrong(key, f"has items that are not of type {kind.__name__}")
        if length is not None and len(value) != length:
            raise self.wrong(key, f"has {len(value)} items, not {length}")
        return tuple(value)

    def inner(self, key: str, defaults: Mapping[str, Any] | None = None) -> "Fields":
        """A nested config. Raises CheckpointError where it is missing or no object."""
        value = self.find(key)
        if not isinstance(value, Mapping):
            raise self.wrong(key, "is missing" if value is None else f"is {_short(value)}, not an object")
        return Fields(value, defaults or {}, f"{self.where}{key}.")

    def share(self, of: str, total: int, by: str, parts: int) -> int:
        """``total / parts``. Raises CheckpointError where that leaves a rest."""
        if total % parts:
            raise self.wrong(of, f"is {total}, no multiple of {by}, {parts}")
        return total // parts

    def wrong(self, key: str, why: str) -> CheckpointError:
        """The error that names a key."""
        return CheckpointError(f"config: {self.where}{key} {why}")


def _short(value: object) -> str:
    """A client's value as an error may show it."""
    if isinstance(value, int) and abs(value) > 2**64:
        return "beyond 2^64"
    text = ascii(value) if isinstance(value, bool | int | float | str) else f"of type {type(value).__name__}"
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}.."
