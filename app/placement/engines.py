"""What the programs that run the stages do differently, as data.

An engine decides what bounds a GPU stage, how many tokens a layer caches, what a stage carries beside its layers
and how many stages there may be. Each row of ``ENGINES`` names where its facts come from.
"""

from dataclasses import dataclass, replace

from app.placement.errors import InvalidFieldError

REFERENCE_FRACTION = 0.85
"""Share of a device's memory that arenas can use; the driver keeps the rest (the reference's figure)."""


@dataclass(frozen=True, slots=True)
class Engine:
    """One engine's rules with its options filled in.

    ``gpu_memory`` is what bounds GPU stages that say ``auto`` (None: the reference's rule), ``gpu_fraction`` the share
    of the devices that it uses then. ``embeds``: the first stage holds the embedding. ``shares_table``: a tied table is
    held once by a single stage. ``block_tokens``: caches are whole blocks of so many tokens per sequence;
    ``kv_pad``: caches are padded to a multiple, ``kv_unified`` for all sequences together. ``tensor_parallel``:
    devices of every stage, None where nodes may differ.
    """

    name: str
    options: frozenset[str]
    gpu_memory: str | None = None
    gpu_fraction: float = REFERENCE_FRACTION
    overhead_bytes: int = 0
    block_tokens: int = 1
    max_batched_tokens: int = 1
    kv_pad: int = 0
    n_ubatch: int = 0
    kv_unified: bool = True
    embeds: bool = True
    shares_table: bool = True
    optimize: str = "throughput"
    max_devices: int | None = None
    tensor_parallel: int | None = None

    def cached_tokens(self, context: int, sequences: int, window: int | None) -> int:
        """Tokens that the engine keeps in one layer, all sequences together; ``window`` None for full attention."""
        if self.kv_pad:
            return self._padded_tokens(context, sequences, window)
        if self.block_tokens > 1:
            return sequences * self.block_tokens * self._blocks(context, window)
        return sequences * (context if window is None else min(context, window))

    def _padded_tokens(self, context: int, sequences: int, window: int | None) -> int:
        cells, rows = (sequences * context, 1) if self.kv_unified else (context, sequences)
        if window is not None:
            cells = min(cells, window * (sequences if self.kv_unified else 1) + self.n_ubatch)
        return rows * self.kv_pad * -(-cells // self.kv_pad)

    def _blocks(self, context: int, window: int | None) -> int:
        whole = -(-context // self.block_tokens)
        if window is None:
            return whole
        return min(whole, -(-(window - 1 + self.max_batched_tokens) // self.block_tokens) + 1)


def _plain() -> Engine:
    """An engine without surprises: it keeps what attention reads, and nothing else."""
    return Engine("plain", frozenset({"overhead_bytes"}))


def _llama_cpp() -> Engine:
    """llama.cpp over RPC.

    Sources: ``src/llama-kv-cache-iswa.cpp`` (``size_swa = GGML_PAD(min(size_base, n_swa * (unified ? n_seq_max : 1)
    + n_ubatch), 256)``); ``src/llama-model.cpp``, ``load_tensors`` (the input layer always stays in the client's RAM;
    a tied output table is duplicated for the device of the output layer); ``src/llama.cpp``,
    ``llama_max_devices`` (16). A request passes the stages one after the other, hence latency.
    """
    return Engine(
        "llama.cpp",
        frozenset({"overhead_bytes", "kv_pad", "n_ubatch", "kv_unified"}),
        gpu_memory="dedicated",
        overhead_bytes=600_000_000,
        kv_pad=256,
        n_ubatch=512,
        embeds=False,
        shares_table=False,
        optimize="latency",
        max_devices=16,
    )


def _vllm() -> Engine:
    """VLLM with pipeline parallelism, tensor parallelism inside a node.

    Sources: ``vllm/v1/kv_cache_interface.py`` (full attention: blocks of 16 tokens; ``SlidingWindowSpec``: the window
    less one and the batch in whole blocks, and one block more, since a window need not start at a block);
    ``vllm/config/cache.py`` (``gpu_memory_utilization`` 0.92); ``vllm/config/parallel.py`` (one
    ``tensor_parallel_size`` for all pipeline ranks).
    """
    return Engine(
        "vllm",
        frozenset({"overhead_bytes", "max_batched_tokens", "tensor_parallel"}),
        gpu_memory="pooled",
        gpu_fraction=0.92,
        overhead_bytes=2_000_000_000,
        block_tokens=16,
        max_batched_tokens=8192,
    )


def _sglang() -> Engine:
    """SGLang; it sizes caches as vLLM does but takes less of the card.

    Source: ``python/sglang/srt/server_args.py`` (``mem_fraction_static`` 0.88 where it isn't given).
    """
    return replace(_vllm(), name="sglang", gpu_fraction=0.88)


PLAIN = _plain()
ENGINES: dict[str, Engine] = {
    "plain": PLAIN,
    "rlx": replace(PLAIN, name="rlx"),
    "llama.cpp": _llama_cpp(),
    "vllm": _vllm(),
    "sglang": _sglang(),
}


def engine(name: str, options: dict[str, int | bool] | None = None) -> Engine:
    """An engine by name, its options set. Raises InvalidFieldError for what it doesn't know or can't take."""
    rules = ENGINES.get(name)
    if rules is None:
        raise InvalidFieldError(f"no engine {name}; there are {', '.join(ENGINES)}", "/engine/name")
    for option, value in (options or {}).items():
        if option not in rules.options:
            raise InvalidFieldError(f"engine {name} has no option {option}", f"/engine/{option}")
        least = 0 if option in ("overhead_bytes", "kv_unified") else 1
        if isinstance(value, bool) != (option == "kv_unified") or value < least:
            raise InvalidFieldError(f"{option} of engine {name} can't be {value}", f"/engine/{option}")
    return replace(rules, **(options or {}))  # type: ignore[arg-type]  # each option is named and typed above
