"""What the layers of a GGUF model keep of a sequence: from its figures, and from which tensors a layer has.

The rules are llama.cpp's, which runs such files: where it passes over a window that a file names, so does this.
Elements per layer are those of its ``llama_hparams`` (src/llama-hparams.cpp: ``n_embd_k_gqa``, ``n_embd_v_gqa``,
``n_embd_r``, ``n_embd_s``). What a layer is, its tensors say, since no figure does for every architecture; where
figures and tensors contradict each other, that is an error.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from app.checkpoints.tensors import Architecture, Cache, CheckpointError, Tensor

MAX_LAYERS = 10_000
MAX_FIGURE = 2**40
MAX_NAME_CHARS = 80

LAYER = re.compile(r"blk\.(\d{1,6})\.(.+)")
STATE = re.compile(r"ssm_|shortconv\.|time_mix_")
STATELESS = re.compile(r"(?:ffn|attn_norm|attn_output|attn_post_norm|post_|exp_probs_b|rope_|layer_output|nextn)")
"""What a layer without attention and state has: a feed-forward network, norms, a projection in attention's place."""

UNKNOWN = re.compile(r"compress|cross_attn|lightning|^(?:enc|dec)\.")
"""Mechanisms that keep what isn't known here, such as DeepSeek-V4's compressed caches."""

CACHELESS = {
    **dict.fromkeys(
        ("bert", "nomic-bert", "nomic-bert-moe", "jina-bert-v2", "jina-bert-v3", "neo-bert", "modern-bert", "eurobert",
         "gemma-embedding", "llama-embed", "t5encoder"),
        "it is an encoder, which keeps nothing of a sequence"),
    **dict.fromkeys(("dream", "llada", "llada-moe", "rnd1"), "it writes by diffusion, without a cache of past tokens"),
    **dict.fromkeys(("clip", "wavtokenizer-dec"), "it is no language model"),
    "t5": "its decoder also caches the encoder's output, whose length isn't the context's",
    "deepseek4": "its compressed caches aren't known here",
    "gemma4-assistant": "it reads the cache of the model that it drafts for",
    "eagle3": "it drafts for another model",
    "dflash": "it drafts for another model",
}  # fmt: skip
"""Architectures whose caches can't be told per layer and token, and why (src/llama-model.cpp, ``create_memory``)."""


@dataclass(frozen=True, slots=True)
class Slides:
    """Which layers see only a window: of each ``period`` all but the last, or all but the first.

    ``unnamed`` is the window where the file names none: 0: then no layer slides, None: then it is broken. ``fixed`` is
    the window whatever it names.
    """

    period: int
    unnamed: int | None = 0
    first_is_full: bool = False
    fixed: int | None = None


SLIDES = {
    "afmoe": Slides(4),
    "cohere2": Slides(4, None),
    "cohere2moe": Slides(4, None, first_is_full=True),
    "exaone-moe": Slides(4, 128),
    "exaone4": Slides(4, 4096),
    "gemma2": Slides(2, 4096),
    "gemma3": Slides(6),
    "gemma3n": Slides(5, None),
    "gpt-oss": Slides(2, None),
    "llama4": Slides(4, 8192, fixed=8192),
    "mellum": Slides(4),
    "olmo2": Slides(4),
    "plamo3": Slides(8),
    "smallthinker": Slides(4, first_is_full=True, fixed=4096),
}
"""Patterns that files needn't name (llama.cpp's ``set_swa_pattern`` and ``n_swa``: in src/models/<architecture>.cpp,
until 2026 in src/llama-model.cpp, ``load_hparams``). gemma4, mimo2 and step35 have theirs in the file."""

SEE_ALL = frozenset({"llama", "phi3", "phimoe", "qwen2", "qwen2moe", "qwen2vl", "qwen3", "qwen3moe", "starcoder2"})
"""llama.cpp passes over windows that their files may name (of phi3 its pull request 13676 says why)."""

PATTERN = "attention.sliding_window_pattern"

FULL_SIZE_ONLY = {"exaone4": 64}
"""Of EXAONE 4 only the model of 64 layers slides."""

MAMBA1 = frozenset({"mamba", "jamba"})
"""Their convolution sees the inner stream alone; their files have no ``ssm.group_count``."""

REUSING = {"gemma3n": 20}
"""Layers from the start that cache for all others, where the file has no ``attention.shared_kv_layers``."""


@dataclass(slots=True)
class Layer:
    """A layer's tensors by their names without its prefix."""

    at: int
    tensors: dict[str, Tensor] = field(default_factory=dict)

    def has(self, *names: str) -> bool:
        """Whether it has weights of one of these names."""
        return any(f"{name}.weight" in self.tensors for name in names)

    def rows(self, name: str) -> int | None:
        """Rows of a weight, None where it isn't there."""
        weight = self.tensors.get(f"{name}.weight")
        return weight.shape[0] if weight and weight.shape else None


class Figures:
    """A file's figures under its architecture's name. Every getter raises CheckpointError and names the key."""

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        name = metadata.get("general.architecture")
        if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME_CHARS:
            raise CheckpointError("general.architecture is missing or no name: the file doesn't say what it is")
        self.name = name
        self._metadata = metadata

    def find(self, key: str) -> Any:
        """A figure, None where it isn't there."""
        return self._metadata.get(f"{self.name}.{key}")

    def broken(self, key: str, why: str) -> CheckpointError:
        """The error of a figure that is missing or makes no sense."""
        return CheckpointError(f"{self.name}.{key} {why}")

    def count(self, key: str, default: int | None = None, least: int = 0) -> int:
        """A whole number."""
        value = self.find(key)
        value = default if value is None else value
        if value is None:
            raise self.broken(key, "is missing: without it what the layers cache can't be told")
        if type(value) is not int or not least <= value <= MAX_FIGURE:
            raise self.broken(key, f"must be a whole number from {least} to 2^40")
        return value

    def by_layer(self, key: str, n_layers: int, default: Sequence[int] | None = None) -> Sequence[int]:
        """A whole number for each layer, from one for all or a list."""
        value = self.find(key)
        if value is None and default is not None:
            return default
        if not isinstance(value, list):
            return [self.count(key)] * n_layers
        if len(value) < n_layers or not all(type(n) is int and 0 <= n <= MAX_FIGURE for n in value):
            raise self.broken(key, f"must have a whole number for each of the {n_layers} layers")
        return value


def architecture(metadata: Mapping[str, Any], tensors: Iterable[Tensor]) -> Architecture:
    """The model that a GGUF header describes. O(tensors).

    Blocks that predict further tokens, the last of ``block_count``, are no part of it. Raises CheckpointError where an
    architecture's caches can't be told, where a figure is missing without which they can't, and where a layer's tensors
    contradict the figures.
    """
    figures = Figures(metadata)
    if figures.name in CACHELESS:
        raise CheckpointError(f"{figures.name} can't be planned: {CACHELESS[figures.name]}")
    n_blocks = figures.count("block_count", least=1)
    n_layers = n_blocks - figures.count("nextn_predict_layers", 0)
    if n_layers < 1 or n_blocks > MAX_LAYERS:
        raise figures.broken("block_count", f"must be up to {MAX_LAYERS}, and more than nextn_predict_layers")
    blocks, others = _by_block(tensors, n_blocks)
    layers, predicting = blocks[:n_layers], blocks[n_layers:]
    for block in predicting:
        if block.tensors and not any(name.startswith("nextn.") for name in block.tensors):
            raise figures.broken("nextn_predict_layers", f"counts block {block.at}, which has no nextn tensors")
    attention = _Attention(figures, n_layers)
    caches = tuple(_cache(figures, attention, layer) for layer in layers)
    if not any(cache.k_elements or cache.state_elements for cache in caches):
        raise CheckpointError(f"no layer of {figures.name} has attention or a state; its caches can't be told")
    experts = figures.count("expert_count", 0)
    used = figures.count("expert_used_count", 0 if not experts else None, least=min(experts, 1))
    if used > experts:
        raise figures.broken("expert_used_count", f"must be up to {experts}")
    return Architecture(figures.name, caches, "output.weight" not in others, experts, used)


def _by_block(tensors: Iterable[Tensor], n_blocks: int) -> tuple[list[Layer], set[str]]:
    """Each block with its tensors, and the names of the others."""
    blocks = [Layer(at) for at in range(n_blocks)]
    others: set[str] = set()
    for tensor in tensors:
        found = LAYER.fullmatch(tensor.name)
        if UNKNOWN.search(tensor.name):
            raise CheckpointError(f"what {tensor.name[:80]!r} keeps of a sequence isn't known")
        if found is None:
            others.add(tensor.name)
        elif int(found[1]) < n_blocks:
            blocks[int(found[1])].tensors[found[2]] = tensor
        else:
            raise CheckpointError(f"tensor {tensor.name[:80]!r} is beyond the {n_blocks} blocks that the file has")
    return blocks, others


def _cache(figures: Figures, attention: "_Attention", layer: Layer) -> Cache:
    """What a layer keeps: a cache, a state, or both side by side (Falcon-H1)."""
    has_state = any(STATE.match(name) for name in layer.tensors)
    state = _state(figures, layer) if has_state else 0
    if layer.has("attn_kv_a_mqa"):
        cache = attention.latent(layer)
    elif layer.has("attn_k") or (layer.has("attn_qkv") and not has_state):  # beside a state it is the delta net's
        cache = attention.cache(layer)
    elif has_state or attention.needs_none(layer):
        cache = Cache()
    else:
        raise CheckpointError(
            f"layer {layer.at} of {figures.name} has {len(layer.tensors)} tensors, and none of attention or of a state "
            f"that is known here ({', '.join(sorted(layer.tensors))[:160] or 'it is missing'})"
        )
    return replace(cache, state_elements=state)


def _state(figures: Figures, layer: Layer) -> int:
    """Elements of a layer's state: ``n_embd_r`` (the last inputs of convolutions) and ``n_embd_s`` of llama.cpp."""
    hidden = figures.count("embedding_length", least=1)
    if layer.has("shortconv.conv"):
        return hidden * (figures.count("shortconv.l_cache", least=1) - 1)
    if layer.has("time_mix_key", "time_mix_receptance"):
        return hidden * (figures.count("token_shift_count", 2) + figures.count("wkv.head_size", least=1))
    if layer.has("ssm_conv1d_q"):
        return _delta_attention_state(figures)
    if not layer.has("ssm_conv1d"):
        raise CheckpointError(f"layer {layer.at} of {figures.name} has a state of a kind that isn't known here")
    conv, inner = figures.count("ssm.conv_kernel", least=1), figures.count("ssm.inner_size", least=1)
    state = figures.count("ssm.state_size", least=1)
    groups = 0 if figures.name in MAMBA1 else figures.count("ssm.group_count")
    convolved = inner + 2 * groups * state
    rows = layer.rows("ssm_conv1d")
    if rows is not None and rows != convolved:
        raise CheckpointError(
            f"layer {layer.at} of {figures.name} convolves {rows} channels; by ssm.inner_size, ssm.group_count and "
            f"ssm.state_size they are {convolved}"
        )
    return (conv - 1) * convolved + inner * state


def _delta_attention_state(figures: Figures) -> int:
    """Kimi's: three convolutions, and a matrix per head."""
    heads = max(figures.by_layer("attention.head_count", 1))
    width = figures.count("kda.head_dim", least=1)
    return 3 * (figures.count("ssm.conv_kernel", least=1) - 1) * heads * width + heads * width**2


class _Attention:
    """The attention's figures by layer, looked up when a layer turns out to have any."""

    def __init__(self, figures: Figures, n_layers: int) -> None:
        self._figures = figures
        self._n_layers = n_layers
        self._windows = _windows(figures, n_layers)
        reusing = n_layers - REUSING.get(figures.name, n_layers)
        self._caching = n_layers - figures.count("attention.shared_kv_layers", max(0, reusing))

    def cache(self, layer: Layer) -> Cache:
        """Keys and values of a layer; none where it reuses an earlier layer's."""
        if layer.at >= self._caching:
            return Cache()
        if layer.has("indexer.attn_k"):
            raise CheckpointError(f"what the indexer of layer {layer.at} of {self._figures.name} keeps isn't known")
        window = self._windows[layer.at]
        queries, heads = self._heads(layer.at)
        key, value = self._widths(queries, sliding=window is not None)
        self._check_rows(layer, "attn_k", heads * key)
        self._check_rows(layer, "attn_v", heads * value)
        self._check_rows(layer, "attn_qkv", queries * key + heads * (key + value))
        return Cache(self._some(layer, heads * key), heads * value, window)

    def latent(self, layer: Layer) -> Cache:
        """Latent attention (DeepSeek-V2, section 2.1): the latent and one rotary key, which serve as values too.

        So llama.cpp since its pull request 19067 (2026); until then it kept 512 elements of values beside the 576. A
        file without the absorbed projections (older than pull request 12801), and architectures that never had them
        (MiniCPM3, PLM), run as attention of full heads. DeepSeek-V3.2's indexer caches a key of its own.
        """
        if not layer.has("attn_k_b"):
            return self._expanded(layer)
        latent = self._figures.count("attention.kv_lora_rank", least=1) + self._figures.count("rope.dimension_count")
        self._check_rows(layer, "attn_kv_a_mqa", latent)
        if layer.has("indexer.attn_k"):
            latent += self._figures.count("attention.indexer.key_length", least=1)
        return Cache(latent)

    def needs_none(self, layer: Layer) -> bool:
        """Whether a layer without attention is meant to have none: by the figures, and by all that it has.

        It reuses another's cache, or the file says that it has no heads of keys (Nemotron-H, DeciLM).
        """
        if layer.at >= self._caching:
            return bool(layer.tensors)
        heads = self._figures.find("attention.head_count_kv")
        return (
            isinstance(heads, list)
            and len(heads) >= self._n_layers
            and heads[layer.at] == 0
            and bool(layer.tensors)
            and all(STATELESS.match(name) for name in layer.tensors)
        )

    def _expanded(self, layer: Layer) -> Cache:
        """Keys and values of every head, as if there were no latent."""
        queries, heads = self._heads(layer.at)
        if self._figures.find("attention.key_length_mla") is not None:
            key = self._figures.count("attention.key_length_mla", least=1)
            value = self._figures.count("attention.value_length_mla", least=1)
        elif heads < queries:  # key_length is the latent's
            raise self._figures.broken("attention.key_length_mla", "is missing, and so are the projections attn_k_b")
        else:
            key, value = self._widths(queries, sliding=False)
        rope = self._figures.count("rope.dimension_count")
        self._check_rows(layer, "attn_kv_b", queries * (key - rope + value))
        return Cache(self._some(layer, queries * key), queries * value)

    def _heads(self, at: int) -> tuple[int, int]:
        """Heads of queries, and of keys and values."""
        queries = self._figures.by_layer("attention.head_count", self._n_layers)
        return queries[at], self._figures.by_layer("attention.head_count_kv", self._n_layers, queries)[at]

    def _widths(self, queries: int, *, sliding: bool) -> tuple[int, int]:
        """Elements of a key and of a value of one head."""
        even = self._figures.count("embedding_length", least=1) // queries if queries else 0
        key = self._figures.count("attention.key_length", even)
        value = self._figures.count("attention.value_length", even)
        if sliding:
            key = self._figures.count("attention.key_length_swa", key)
            value = self._figures.count("attention.value_length_swa", value)
        return key, value

    def _some(self, layer: Layer, elements: int) -> int:
        if not elements:
            raise self._figures.broken("attention.head_count_kv", f"is 0 for layer {layer.at}, which has attention")
        return elements

    def _check_rows(self, layer: Layer, name: str, expected: int) -> None:
        """Raise CheckpointError where a projection is wider or narrower than the figures say."""
        rows = layer.rows(name)
        if rows is not None and rows != expected:
            raise CheckpointError(
                f"layer {layer.at} of {self._figures.name}: {name} has {rows} rows, by the file's figures (heads and "
                f"lengths of keys and values) {expected}"
            )


def _windows(figures: Figures, n_layers: int) -> list[int | None]:
    """The window of each layer, None where it sees everything."""
    if figures.name in SEE_ALL or FULL_SIZE_ONLY.get(figures.name, n_layers) != n_layers:
        return [None] * n_layers
    known = SLIDES.get(figures.name)
    slides = _pattern(figures, n_layers, known)
    unnamed = known.unnamed if known else None if any(slides) else 0
    window = figures.count("attention.sliding_window", unnamed)
    window = known.fixed if window and known and known.fixed else window
    if window and not known and figures.find(PATTERN) is None:
        raise figures.broken(PATTERN, "is missing: there is a window, and which layers it binds can't be told")
    return [window if window and sliding else None for sliding in slides]


def _pattern(figures: Figures, n_layers: int, known: Slides | None) -> list[bool]:
    """Which layers slide where there is a window: by the file's list or period, else by the architecture's."""
    told = figures.find(PATTERN)
    if isinstance(told, list):
        if len(told) < n_layers or not all(isinstance(sliding, int) for sliding in told):
            raise figures.broken(PATTERN, f"must say of each of the {n_layers} layers whether it slides")
        return [bool(sliding) for sliding in told[:n_layers]]
    period = figures.count(PATTERN, known.period if known else 1, least=1)
    full = 0 if known and known.first_is_full else period - 1
    return [at % period != full for at in range(n_layers)]
