"""What all decoders have in common: a table, layers, a last normalisation, a head."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from app.checkpoints.architectures.parts import Heads
from app.checkpoints.architectures.reading import Config
from app.checkpoints.architectures.weights import Weights
from app.checkpoints.tensors import Cache, CheckpointError

Build = Callable[[Config, Weights, bool], list[Cache]]
"""Adds a model's tensors, its head's only where the table isn't shared (the last argument); returns its caches."""

SLIDING = {"sliding_attention": "sliding_window", "chunked_attention": "attention_chunk_size"}
"""Kinds of layers that see a part of the sequence, and the key that says how much."""

ROUTED = ("n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts")
CHOSEN = ("num_experts_per_tok", "experts_per_token", "moe_topk", "top_k_experts")


@dataclass(frozen=True, slots=True)
class Family:
    """How an architecture is built; ``tied`` and ``defaults`` are its class's own where the config is silent."""

    build: Build
    tied: bool = False
    defaults: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Names:
    """What the tensors around the layers are called."""

    root: str = "model"
    embed: str = "embed_tokens"
    layers: str = "layers"
    final: str = "norm"
    head: str = "lm_head"


def decoder(
    c: Config,
    w: Weights,
    tied: bool,  # noqa: FBT001  # as every ``Build`` has it
    layer: Callable[[int, str], Cache],
    names: Names,
    *,
    norm_bias: bool = False,
) -> list[Cache]:
    """The tensors around the layers; ``layer`` adds one under its prefix and tells its cache."""
    w.table(f"{names.root}.{names.embed}", c.vocab, c.hidden)
    caches = [layer(at, f"{names.root}.{names.layers}.{at}") for at in range(c.n_layers)]
    w.norm(f"{names.root}.{names.final}", c.hidden, bias=norm_bias)
    if not tied:
        w.table(names.head, c.vocab, c.hidden)
    return caches


def names_of(c: Config, nested: str = "model.language_model") -> Names:
    """The usual names; deeper in models that also see."""
    return Names(nested) if c.text is not c.whole else Names()


def heads_of(c: Config) -> Heads:
    """The attention's shape."""
    return Heads(c.hidden, c.heads, c.kv_heads, c.head_dim)


def windows_of(c: Config, slides: Callable[[int], bool] | None = None) -> list[int | None]:
    """The window of each layer, None where it sees all: by ``layer_types``, else by ``slides``.

    A config that has a window and doesn't use it says so by ``use_sliding_window``.
    """
    n_layers = c.n_layers
    kinds = c.listed("layer_types", n_layers)
    if kinds is not None:
        return [_window(c, kind) for kind in kinds]
    if slides is None or c.find("sliding_window") is None or not c.flag("use_sliding_window", default=True):
        return [None] * n_layers
    window = c.count("sliding_window")
    return [window if slides(at) else None for at in range(n_layers)]


def _window(c: Config, kind: object) -> int | None:
    key = SLIDING.get(str(kind))
    return None if key is None else c.count(key)


def n_experts(c: Config) -> int:
    """Routed experts of a layer that has any."""
    return c.count(*ROUTED, default=0, least=0)


def experts_per_token(c: Config) -> int:
    """How many of them one token is sent to."""
    return c.count(*CHOSEN, default=0, least=0)


def mixes(c: Config, at: int) -> bool:
    """Whether a layer of Qwen's or DeepSeek's kind has experts rather than one network."""
    if at in c.indices("mlp_only_layers"):
        return False
    if c.find("first_k_dense_replace") is not None:
        after = at - c.count("first_k_dense_replace", least=0)
        return after >= 0 and at % c.count("moe_layer_freq", default=1) == 0
    return (at + 1) % c.count("decoder_sparse_step", default=1) == 0


def pattern_of(c: Config, key: str, known: str) -> str:
    """A string with a letter for each layer."""
    value = c.find(key)
    if not isinstance(value, str) or len(value) != c.n_layers or not set(value) <= set(known):
        raise CheckpointError(f"{key} must have one of {' '.join(known)} for each of the {c.n_layers} layers")
    return value
