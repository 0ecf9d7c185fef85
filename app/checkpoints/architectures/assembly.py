"""From parts to a model, and from a model to its tensors."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

from app.checkpoints.architectures.fields import Fields
from app.checkpoints.architectures.parts.feedforward import Experts
from app.checkpoints.architectures.storage.schemes import Scheme
from app.checkpoints.architectures.weights import NOTHING, Part, Weight, norm, table
from app.checkpoints.tensors import Architecture, CheckpointError, Tensor

LARGEST = 2**63 - 1

MAX_WORK = 300_000
"""Names times patterns. Real configs stay below a tenth of it; a hostile one is refused before it takes seconds."""


@dataclass(frozen=True, slots=True)
class Layout:
    """What a checkpoint calls the parts around its layers, and the layers."""

    embedding: str = "model.embed_tokens"
    layers: str = "model.layers"
    norm: str = "model.norm"
    head: str = "lm_head"


LLAMA = Layout()


@dataclass(frozen=True, slots=True)
class Model:
    """A model by its parts. Names of ``layers`` lack what ``layers_at`` and the index put before them.

    ``apart`` is what is no part of the stack: towers, and blocks that predict further tokens.
    """

    embedding: Part
    layers: tuple[Part, ...]
    final: Part
    tied: bool
    layers_at: str = "model.layers"
    apart: Part = NOTHING
    experts: Experts | None = None
    buffers: Part = NOTHING

    def beside(self, more: Part) -> "Model":
        """The same model with more beside its stack."""
        return replace(self, apart=self.apart + more)

    def renamed(self, rename: Callable[[str], str]) -> "Model":
        """The same model with other names."""
        return replace(
            self,
            embedding=_renamed(self.embedding, rename),
            final=_renamed(self.final, rename),
            apart=_renamed(self.apart, rename),
            buffers=_renamed(self.buffers, rename),
            layers_at=rename(self.layers_at),
        )


@dataclass(frozen=True, slots=True)
class Family:
    """How to put a model together from its config, and what its class fills in where a nested config has no key."""

    build: Callable[[Fields], Model]
    defaults: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Composite:
    """A language model with towers beside it, its config nested or among that of the towers.

    ``towers`` takes the whole config and the language model's width. ``body`` and ``head`` are what the checkpoint
    calls what is ``model`` and ``lm_head`` in a plain one. ``text`` is the type of the language model where the config
    leaves it out.
    """

    towers: Callable[[Fields, int], Part]
    body: str
    head: str
    text: str

    def rename(self, name: str) -> str:
        """A plain checkpoint's name as this one has it; blocks of further predictions keep theirs."""
        first, _, rest = name.partition(".")
        return {"model": f"{self.body}.{rest}", "lm_head": f"{self.head}.{rest}"}.get(first, name)


def decoder(
    c: Fields,
    layers: tuple[Part, ...],
    *,
    tied: bool = False,
    experts: Experts | None = None,
    layout: Layout = LLAMA,
    closing: Callable[[str, int], Part] = norm,
) -> Model:
    """A table, the layers, a closing norm and a head; ``tied`` is the class's default."""
    hidden, vocab = c.whole("hidden_size", "n_embed"), c.whole("vocab_size")
    tied = c.flag("tie_word_embeddings", tied)
    head = NOTHING if tied else table(layout.head, vocab, hidden, "head")
    return Model(
        embedding=table(layout.embedding, vocab, hidden),
        layers=layers,
        final=closing(layout.norm, hidden) + head,
        tied=tied,
        layers_at=layout.layers,
        experts=experts,
    )


def finished(name: str, model: Model, scheme: Scheme) -> Architecture:
    """The model as its checkpoint stores it. O(tensors). Raises CheckpointError where it is too large to be one."""
    around = (*model.embedding.weights, *model.final.weights)
    weights = sum(len(layer.weights) for layer in model.layers) + len(model.apart.weights)
    if weights * scheme.work > MAX_WORK:
        raise CheckpointError(f"config: {scheme.work} patterns of modules are too many for {weights} tensors")
    tensors = [
        *(_tensor(w.name, w, scheme, in_stack=True) for w in around),
        *_layer_tensors(model, scheme),
        *(_tensor(w.name, w, scheme, in_stack=False) for w in model.apart.weights),
    ]
    if sum(t.n_bytes for t in tensors) > LARGEST:
        raise CheckpointError(f"config: a model of this shape ({name}) has more than 2^63 bytes")
    return Architecture(
        name=name,
        caches=tuple(layer.cache for layer in model.layers),
        tied=model.tied,
        n_experts=model.experts.n if model.experts else 0,
        experts_per_token=model.experts.per_token if model.experts else 0,
        tensors=tuple(tensors),
        buffers=tuple(_tensor(w.name, w, scheme, in_stack=False) for w in model.buffers.weights),
    )


def _layer_tensors(model: Model, scheme: Scheme) -> Iterable[Tensor]:
    for at, layer in enumerate(model.layers):
        for weight in layer.weights:
            yield _tensor(f"{model.layers_at}.{at}.{weight.name}", weight, scheme, in_stack=True)


def _tensor(name: str, weight: Weight, scheme: Scheme, *, in_stack: bool) -> Tensor:
    if not 0 < prod(weight.shape) <= LARGEST:
        raise CheckpointError(f"config: {name} would have no parameters, or more than 2^63")
    dtype, n_bytes = scheme.stored(name, weight, in_stack=in_stack)
    return Tensor(name, weight.shape, dtype, n_bytes)


def _renamed(part: Part, rename: Callable[[str], str]) -> Part:
    return replace(part, weights=tuple(replace(w, name=rename(w.name)) for w in part.weights))
