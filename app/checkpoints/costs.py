"""From tensors and caches to a model's cost: bytes and FLOPs per layer, equal neighbours as one block."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from app.checkpoints.caches import DEFAULT, kv_bytes_per_token, state_bytes
from app.checkpoints.roles import Parts, n_layers_of, sort_out
from app.checkpoints.tensors import Architecture, Cache, CheckpointError, Tensor
from app.placement.cost import Block, ModelCost
from app.placement.units import INT_MAX

KEYS = re.compile(r"\.(?:k_proj|attn_k)\.weight$")
VALUES = re.compile(r"\.(?:v_proj|attn_v)\.weight$")
LATENT = re.compile(r"\.(?:kv_a_proj_with_mqa|attn_kv_a_mqa)\.weight$")

PACKED = frozenset({"i32", "u32", "u8", "i8", "f4", "unknown"})
"""Types that quantised checkpoints pack several parameters into."""

HIDDEN = "packed tensors hide how many parameters there are; FLOPs count one an element"

APART = {"vision": "towers for images or sound", "prediction": "blocks that predict further tokens"}


@dataclass(frozen=True, slots=True)
class Priced:
    """A cost, and what a person should know about it."""

    cost: ModelCost
    notes: tuple[str, ...] = ()


def price(
    tensors: Sequence[Tensor],
    architecture: Architecture | None,
    *,
    kv_dtype: str = DEFAULT,
    name: str | None = None,
    source: str | None = None,
) -> Priced:
    """The cost of a model that is stored as these tensors. O(tensors).

    ``architecture`` tells the caches and, where it lists tensors of its own, the parameters, which a packed file hides;
    without it the caches are read off the shapes of the keys' and values' projections. FLOPs are 2 x the parameters
    that one token touches (Kaplan et al. 2020, section 2.1). Raises CheckpointError.
    """
    caches = architecture.caches if architecture else _caches_by_shape(tensors)
    stored = sort_out(tensors, len(caches))
    logical = sort_out(architecture.tensors, len(caches)) if architecture and architecture.tensors else stored
    _check_complete(stored)
    if max(_bytes(stored.stack), _parameters(logical.stack)) > INT_MAX:
        raise CheckpointError("the tensors together are beyond 2^63-1 bytes or elements")
    tied = not stored.has_head if architecture is None else architecture.tied and not stored.has_head
    share = _active_share(architecture)
    hidden = logical is stored and _hides(stored.stack)
    layers = [_block(stored, logical, at, cache, kv_dtype, share) for at, cache in enumerate(caches)]
    table = stored.table.n_bytes if tied and stored.table else 0
    embed, head = _bytes(stored.embedding), _bytes(stored.head) + table
    cost = ModelCost(
        n_layers=len(caches),
        per_layer_bytes=0,
        embed_bytes=embed,
        head_bytes=head,
        name=name,
        source=source,
        layers=tuple(layers),
        head_flops=2.0 * (_parameters(logical.head) + (_parameters([logical.table]) if tied and logical.table else 0)),
        tied_embeddings=tied,
        tied_bytes=table if tied else None,
        params=None if hidden else _parameters(logical.stack),
    )
    notes = _notes(stored, architecture)
    return Priced(shortened(cost), (*notes, HIDDEN) if hidden else notes)


def shortened(cost: ModelCost) -> ModelCost:
    """The same cost with equal neighbours as one block, or without blocks where one kind of layer says it all."""
    blocks = cost.blocks
    if len(blocks) > 1 or not blocks[0].divisible or blocks[0].kv_window is not None or blocks[0].state_bytes:
        return replace(cost, layers=blocks)
    block = blocks[0]
    return replace(
        cost,
        layers=(),
        per_layer_bytes=block.bytes,
        per_layer_flops=block.flops,
        kv_bytes_per_layer_token=block.kv_bytes_per_token,
        expert_bytes_per_layer=block.expert_bytes,
        expert_active_bytes_per_layer=block.expert_active_bytes,
    )


def _block(stored: Parts, logical: Parts, at: int, cache: Cache, kv_dtype: str, share: tuple[int, int]) -> Block:
    used, of = share
    experts = _bytes(stored.experts[at])
    touched = _parameters(logical.dense[at]) + _parameters(logical.experts[at]) * used // of
    kv = kv_bytes_per_token(cache, kv_dtype)
    return Block(
        count=1,
        bytes=_bytes(stored.dense[at]),
        flops=2.0 * touched,
        kv_bytes_per_token=kv,
        kv_window=cache.window if kv else None,
        state_bytes=state_bytes(cache),
        expert_bytes=experts,
        expert_active_bytes=experts * used // of,
    )


def _active_share(architecture: Architecture | None) -> tuple[int, int]:
    """Of so many routed experts one token reads so many; all of them where nobody says."""
    if architecture is None or not architecture.n_experts:
        return 1, 1
    return architecture.experts_per_token, architecture.n_experts


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum(t.n_bytes for t in tensors)


def _parameters(tensors: Iterable[Tensor]) -> int:
    return sum(t.n_elements for t in tensors)


def _hides(tensors: Iterable[Tensor]) -> bool:
    """Whether an element may be more than one parameter: integers that nothing tells the meaning of."""
    return any(t.dtype in PACKED for t in tensors)


def _check_complete(parts: Parts) -> None:
    """Raise CheckpointError where a layer has no tensors: a file is missing, or the names are strange."""
    for at, (dense, experts) in enumerate(zip(parts.dense, parts.experts, strict=True)):
        if not dense and not experts:
            raise CheckpointError(f"layer {at} has no tensors; names such as model.layers.{at}.mlp.up_proj.weight")


def _caches_by_shape(tensors: Sequence[Tensor]) -> tuple[Cache, ...]:
    """What each layer caches of a token, by its projections. Raises CheckpointError where a layer shows none."""
    parts = sort_out(tensors, n_layers_of(tensors))
    if not parts.dense:
        raise CheckpointError("no tensor stands in a layer: names such as model.layers.0.mlp.up_proj.weight are needed")
    return tuple(_cache_by_shape(layer, at) for at, layer in enumerate(parts.dense))


def _cache_by_shape(layer: Sequence[Tensor], at: int) -> Cache:
    rows = {
        kind: t.shape[0]
        for t in layer
        for kind, pattern in (("k", KEYS), ("v", VALUES), ("latent", LATENT))
        if t.shape and pattern.search(t.name)
    }
    if "latent" in rows:
        return Cache(rows["latent"])
    if rows.keys() >= {"k", "v"}:
        return Cache(rows["k"], rows["v"])
    raise CheckpointError(f"layer {at} shows no projection of keys and values; its cache needs the model's config")


def _notes(stored: Parts, architecture: Architecture | None) -> tuple[str, ...]:
    notes = [
        f"{_bytes(tensors)} bytes of {APART[part]} are no part of the stack and not counted"
        for part, tensors in sorted(stored.apart.items())
    ]
    if architecture is None:
        notes.append("no config: caches by the shapes of the projections, without sliding windows")
    elif architecture.buffers:
        names = ", ".join(sorted({t.name for t in architecture.buffers})[:3])
        notes.append(f"some checkpoints also store {_bytes(architecture.buffers)} bytes of buffers ({names}, ..)")
    return tuple(notes)
