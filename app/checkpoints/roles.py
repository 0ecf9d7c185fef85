"""Where a tensor belongs in a pipeline, told by its name.

The names are those of published safetensors checkpoints and of GGUF files. Whatever stands in no layer of the stack and
is no embedding is the head's, so that nothing is forgotten.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from app.checkpoints.tensors import Tensor

Part = Literal["vision", "prediction"]
"""What is no part of the stack: towers for images and sound, and blocks that predict further tokens."""

LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks|block|blk)\.(\d{1,6})\.")
TOWERS = re.compile(
    r"(?:^|\.)(?:vision_tower|vision_model|vision_encoder|visual|vit|vpm|audio_tower|audio_model|audio_encoder|"
    r"multi_modal_projector|embed_vision|embed_audio|image_newline|resampler|mm_[a-z_]+|mm|v)\."
)
PREDICTION = re.compile(r"(?:^|\.)(?:mtp|nextn)(?:\.|_)")
EXPERTS = re.compile(r"\.experts\.|_exps\.|\.block_sparse_moe\.(?:input|output)_linear\.")
EMBEDDING = re.compile(
    r"(?:^|\.)(?:embed_tokens|embed_in|wte|wpe|word_embeddings|word_embeddings_layernorm|tok_embeddings|embeddings|"
    r"embedding|embed_positions|token_embd|token_embd_norm|position_embd|embed_tokens_per_layer|"
    r"per_layer_token_embd|per_layer_model_projection|per_layer_projection_norm|per_layer_model_proj|per_layer_proj_norm)"
    r"(?:\.|$)"
)
TABLE = re.compile(
    r"(?:^|\.)(?:embed_tokens|embed_in|wte|word_embeddings|tok_embeddings|embeddings|embedding|token_embd)\.weight$"
)
HEAD = re.compile(r"(?:^|\.)(?:lm_head|embed_out|output)\.")


@dataclass(slots=True)
class Parts:
    """A checkpoint's tensors by their place. ``dense`` and ``experts`` have one list per layer of the stack."""

    dense: list[list[Tensor]]
    experts: list[list[Tensor]]
    embedding: list[Tensor] = field(default_factory=list)
    head: list[Tensor] = field(default_factory=list)
    apart: dict[Part, list[Tensor]] = field(default_factory=dict)

    @property
    def table(self) -> Tensor | None:
        """The token embedding."""
        return next((t for t in self.embedding if TABLE.search(t.name)), None)

    @property
    def has_head(self) -> bool:
        """Whether the head has a table of its own."""
        return any(HEAD.search(t.name) for t in self.head)

    @property
    def stack(self) -> list[Tensor]:
        """All but what is apart."""
        layers = [t for part in (*self.dense, *self.experts) for t in part]
        return [*self.embedding, *layers, *self.head]


def n_layers_of(tensors: Iterable[Tensor]) -> int:
    """The number of layers by the names alone, blocks of further predictions included."""
    indices = [int(found[1]) for t in tensors if not TOWERS.search(t.name) and (found := LAYER.search(t.name))]
    return max(indices, default=-1) + 1


def sort_out(tensors: Iterable[Tensor], n_layers: int) -> Parts:
    """The tensors by their place in a stack of so many layers. O(tensors)."""
    parts = Parts([[] for _ in range(n_layers)], [[] for _ in range(n_layers)])
    for tensor in tensors:
        name = tensor.name
        found = LAYER.search(name)
        if TOWERS.search(name):
            parts.apart.setdefault("vision", []).append(tensor)
        elif PREDICTION.search(name) or (found and int(found[1]) >= n_layers):
            parts.apart.setdefault("prediction", []).append(tensor)
        elif found:
            (parts.experts if EXPERTS.search(name) else parts.dense)[int(found[1])].append(tensor)
        elif EMBEDDING.search(name):
            parts.embedding.append(tensor)
        else:
            parts.head.append(tensor)
    return parts
