"""How far back each layer looks: None for everything, else the last so many tokens."""

from collections.abc import Callable

from app.checkpoints.architectures.fields import Fields

SIZES = {
    "full_attention": None,
    "sliding_attention": "sliding_window",
    "chunked_attention": "attention_chunk_size",
}
"""By the type of a layer, the key with its window. Within a chunk a token sees at most the chunk."""


def windows(
    c: Fields, n_layers: int, slides: Callable[[int], bool], key: str = "sliding_window", *, absent: int | None = None
) -> tuple[int | None, ...]:
    """Each layer's window: by ``layer_types`` where the config has them, else that under ``key`` where it ``slides``.

    ``absent`` is the class's window where the config doesn't have the key at all; null means no window. Raises
    CheckpointError.
    """
    kinds = c.items("layer_types", str, n_layers)
    if kinds is None:
        size = c.optional(key) or (None if c.gives(key) else absent)
        return tuple(size if slides(layer) else None for layer in range(n_layers))
    sizes = {kind: _size(c, kind, absent) for kind in dict.fromkeys(kinds)}
    return tuple(sizes[kind] for kind in kinds)


def everywhere(_layer: int) -> bool:
    """Every layer slides."""
    return True


def nowhere(_layer: int) -> bool:
    """No layer slides."""
    return False


def but_every(period: int) -> Callable[[int], bool]:
    """All layers slide but the last of every ``period``."""
    return lambda layer: (layer + 1) % period != 0


def _size(c: Fields, kind: str, absent: int | None) -> int | None:
    if kind not in SIZES:
        raise c.wrong("layer_types", f"has {ascii(kind)[:40]}, which this architecture has no layer of")
    key = SIZES[kind]
    if key is None:
        return None
    return c.whole(key, default=absent)
