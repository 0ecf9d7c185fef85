"""Which modules a quantiser leaves alone, by the names and patterns in its config.

Patterns come from clients: only those are taken whose matching can't blow up, and their number is bounded.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from app.checkpoints.architectures.fields import Fields

MAX_NAMES = 100_000
MAX_PATTERNS = 50
MAX_LENGTH = 200
SAFE = re.compile(
    r"\^?(?:[\w\-/: ]|\.\*|\.\+|\.|\\[.d_\-]\+?|\[[\w\-]+\]\+?|\((?:\?:)?[\w.\\|\-]+\))*\$?",
)
"""Literals, dots, digits, sets, groups of alternatives, none of them repeated but single characters."""

MAX_REPEATS = 2
"""With so few, matching is at most quadratic in the length of a name."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Names, and patterns. A name stands for every module whose path has it as a run of whole parts.

    So ``lm_head`` is ``lm_head``, ``model.layers.*.self_attn`` all that is below any layer's attention, and ``gate``
    the router but no ``gate_proj``.
    """

    names: frozenset[str] = frozenset()
    globs: tuple[tuple[str, ...], ...] = ()
    patterns: tuple[re.Pattern[str], ...] = ()

    @property
    def work(self) -> int:
        """Patterns that each module is compared with."""
        return len(self.globs) + len(self.patterns)

    def has(self, module: str) -> bool:
        """Whether a module is among them. O(patterns + parts^2)."""
        if any(pattern.match(module) for pattern in self.patterns):
            return True
        parts = module.split(".")
        if self.names and any(run in self.names for run in _runs(parts)):
            return True
        return any(_within(glob, parts) for glob in self.globs)


NOTHING_KEPT = Kept()


def kept_of(q: Fields, *keys: str) -> Kept:
    """What is listed under the first of the keys that there is. Raises CheckpointError."""
    for key in keys:
        listed = q.items(key, str)
        if listed:
            return named(q, key, listed)
    return NOTHING_KEPT


def named(q: Fields, key: str, listed: Iterable[str]) -> Kept:
    """Names, paths with ``*`` for one or more parts, and regular expressions behind ``re:``. Raises CheckpointError."""
    names, globs, patterns = set(), [], []
    for entry in listed:
        if entry.startswith("re:"):
            patterns.append(_pattern(q, key, entry[3:]))
        elif "*" in entry:
            globs.append(tuple(entry.strip("*").strip(".").split(".")))
        else:
            names.add(entry)
    if len(globs) + len(patterns) > MAX_PATTERNS or len(names) > MAX_NAMES:
        raise q.wrong(key, f"has more than {MAX_PATTERNS} patterns or {MAX_NAMES} names")
    return Kept(frozenset(names), tuple(globs), tuple(patterns))


def _pattern(q: Fields, key: str, text: str) -> re.Pattern[str]:
    text = text.removesuffix("$").removesuffix(".*") if text.endswith((".*", ".*$")) else text
    repeats = text.count("*") + text.count("+")
    if len(text) > MAX_LENGTH or repeats > MAX_REPEATS or SAFE.fullmatch(text) is None:
        raise q.wrong(key, f"has a pattern that isn't read here: {ascii(text)[:60]}")
    try:
        return re.compile(text)
    except re.error:
        raise q.wrong(key, f"has a pattern that is none: {ascii(text)[:60]}") from None


def _runs(parts: list[str]) -> Iterable[str]:
    n = len(parts)
    return (".".join(parts[i:j]) for i in range(n) for j in range(i + 1, n + 1))


def _within(glob: tuple[str, ...], parts: list[str]) -> bool:
    """Whether the glob's parts stand in a row somewhere, ``*`` for any one of them."""
    width = len(glob)
    rows = (parts[i : i + width] for i in range(len(parts) - width + 1))
    return any(all(want in ("*", is_) for want, is_ in zip(glob, row, strict=True)) for row in rows)
