"""What the layers of a GGUF model keep of a sequence: from its figures, and from which tensors a layer has.

The rules are llama.cpp's, which runs such files: where it ignores a window that a file names, so does this. Which
layers slide stands in the file, or is fixed by the architecture (llama.cpp, src/llama-model.cpp, ``set_swa_pattern``).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from app.checkpoints.tensors import Architecture, Cache, CheckpointError, Tensor

MAX_LAYERS = 10_000
MAX_FIGURE = 2**40

SLIDES: dict[str, Callable[[int], bool]] = {
    "gemma2": lambda at: at % 2 == 0,
    "gemma3": lambda at: (at + 1) % 6 != 0,
    "gpt-oss": lambda at: at % 2 == 0,
    "cohere2": lambda at: (at + 1) % 4 != 0,
    "llama4": lambda at: (at + 1) % 4 != 0,
    "exaone4": lambda at: (at + 1) % 4 != 0,
}
"""Architectures whose layers slide by a fixed pattern."""

CHUNK = 8192
"""Llama 4's, which its files don't name."""


class Figures:
    """A file's figures under its architecture's name."""

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        """Raises CheckpointError where the file doesn't say what it is."""
        name = metadata.get("general.architecture")
        if not isinstance(name, str):
            raise CheckpointError("general.architecture is missing")
        self.name = name
        self._metadata = metadata

    def find(self, key: str) -> Any:
        """A figure, None where it isn't there."""
        return self._metadata.get(f"{self.name}.{key}")

    def count(self, key: str, default: int | None = None) -> int:
        """A whole number. Raises CheckpointError."""
        value = self.find(key)
        value = default if value is None else value
        if value is None:
            raise CheckpointError(f"{self.name}.{key} is missing")
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_FIGURE:
            raise CheckpointError(f"{self.name}.{key} must be a whole number up to 2^40")
        return value

    def by_layer(self, key: str, n_layers: int, default: int | None = None) -> Sequence[int]:
        """A whole number for each layer, from one for all or a list."""
        value = self.find(key)
        if not isinstance(value, list):
            return [self.count(key, default)] * n_layers
        whole = all(isinstance(n, int) and not isinstance(n, bool) and 0 <= n <= MAX_FIGURE for n in value)
        if len(value) < n_layers or not whole:
            raise CheckpointError(f"{self.name}.{key} must have a whole number for each of the {n_layers} layers")
        return value


def architecture(metadata: Mapping[str, Any], tensors: Iterable[Tensor]) -> Architecture:
    """The model that a GGUF header describes. O(tensors).

    Raises CheckpointError where a figure is missing without which a cache can't be told.
    """
    figures = Figures(metadata)
    n_layers = figures.count("block_count") - figures.count("nextn_predict_layers", 0)
    if not 1 <= n_layers <= MAX_LAYERS:
        raise CheckpointError(f"{figures.name}.block_count must be from 1 to {MAX_LAYERS}")
    owned, others = _by_layer(tensors, n_layers)
    attends = _Attention(figures, n_layers)
    caches = tuple(_cache(figures, attends, at, names) for at, names in enumerate(owned))
    if not any(c.k_elements or c.state_elements for c in caches):
        raise CheckpointError(
            f"no layer of {figures.name} shows what it caches: neither attention nor a state is known"
        )
    experts, used = figures.count("expert_count", 0), figures.count("expert_used_count", 0)
    return Architecture(figures.name, caches, "output.weight" not in others, experts, used)


def _by_layer(tensors: Iterable[Tensor], n_layers: int) -> tuple[list[set[str]], set[str]]:
    """The names of each layer's tensors without its prefix, and the names of the others."""
    owned: list[set[str]] = [set() for _ in range(n_layers)]
    others: set[str] = set()
    for tensor in tensors:
        prefix, _, rest = tensor.name.partition(".")
        number, _, name = rest.partition(".")
        if prefix != "blk" or not number.isdecimal():
            others.add(tensor.name)
        elif int(number[:6]) < n_layers:
            owned[int(number[:6])].add(name.removesuffix(".weight"))
    return owned, others


def _cache(figures: Figures, attention: "_Attention", at: int, names: set[str]) -> Cache:
    if "attn_kv_a_mqa" in names:
        return attention.latent(at, absorbed="attn_k_b" in names)
    if names & {"ssm_in", "ssm_conv1d", "ssm_a", "ssm_beta_alpha"}:
        state = _ssm_state(figures)
    elif names & {"time_mix_key", "time_mix_receptance"}:
        state = figures.count("embedding_length") * (2 + figures.count("wkv.head_size"))
    elif any(name.startswith("shortconv") for name in names):
        state = (figures.count("shortconv.l_cache") - 1) * figures.count("embedding_length")
    else:
        state = 0
    cache = attention.cache(at) if names & {"attn_k", "attn_qkv"} and not state else Cache()
    return Cache(cache.k_elements, cache.v_elements, cache.window, state)


def _ssm_state(figures: Figures) -> int:
    """The convolution's last inputs, which input and output maps go through where groups share them; and the state."""
    inner, state = figures.count("ssm.inner_size"), figures.count("ssm.state_size")
    conv, groups = figures.count("ssm.conv_kernel"), figures.count("ssm.group_count", 0)
    return (conv - 1) * (inner + 2 * groups * state) + inner * state


class _Attention:
    """The attention's figures by layer, looked up when a layer turns out to have any."""

    def __init__(self, figures: Figures, n_layers: int) -> None:
        self._figures = figures
        self._n_layers = n_layers
        self._windows = _windows(figures, n_layers)
        self._caching = n_layers - figures.count("attention.shared_kv_layers", 0)

    def cache(self, at: int) -> Cache:
        """Keys and values of a layer; none where it reuses an earlier layer's."""
        if at >= self._caching:
            return Cache()
        window = self._windows[at]
        keys, values = self._widths(at, sliding=window is not None)
        heads = self._of("attention.head_count_kv", at, self._of("attention.head_count", at))
        return Cache(heads * keys, heads * values, window)

    def latent(self, at: int, *, absorbed: bool) -> Cache:
        """The latent and one rotary key; files without the absorbed projections run as attention of full heads."""
        heads = self._of("attention.head_count", at)
        if absorbed:
            return Cache(self._figures.count("attention.kv_lora_rank") + self._figures.count("rope.dimension_count"))
        return Cache(
            heads * self._figures.count("attention.key_length"), heads * self._figures.count("attention.value_length")
        )

    def _widths(self, at: int, *, sliding: bool) -> tuple[int, int]:
        heads = self._of("attention.head_count", at)
        even = self._figures.count("embedding_length") // heads if heads else 0
        keys = self._figures.count("attention.key_length", even)
        values = self._figures.count("attention.value_length", even)
        if sliding:
            keys = self._figures.count("attention.key_length_swa", keys)
            values = self._figures.count("attention.value_length_swa", values)
        return keys, values

    def _of(self, key: str, at: int, default: int | None = None) -> int:
        return self._figures.by_layer(key, self._n_layers, default)[at]


def _windows(figures: Figures, n_layers: int) -> list[int | None]:
    """The window of each layer, None where it sees everything."""
    window = figures.count("attention.sliding_window", CHUNK if figures.name == "llama4" else 0)
    slides = _pattern(figures, n_layers)
    return [window if window and slides(at) else None for at in range(n_layers)]


def _pattern(figures: Figures, n_layers: int) -> Callable[[int], bool]:
    told = figures.find("attention.sliding_window_pattern")
    if isinstance(told, list) and len(told) >= n_layers:
        listed = [bool(slides) for slides in told]
        return lambda at: listed[at]
    if isinstance(told, int) and not isinstance(told, bool) and told > 0:
        return lambda at: (at + 1) % told != 0
    return SLIDES.get(figures.name, lambda _: False)
