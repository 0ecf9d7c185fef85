"""GGUF models as their headers show them, with published figures; tensors that tell nothing are left out."""

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

from app.checkpoints.gguf_architecture import architecture
from app.checkpoints.tensors import Architecture, Tensor

Layer = Mapping[str, tuple[int, ...]]
"""A layer's tensors: names without their prefix, and shapes."""

FFN: Layer = {"ffn_norm.weight": (8,), "ffn_up.weight": (8, 8)}


def tensor(name: str, *shape: int) -> Tensor:
    return Tensor(name, shape, "f16", prod(shape) * 2)


def metadata(arch: str, figures: Mapping[str, Any]) -> dict[str, Any]:
    return {"general.architecture": arch, **{f"{arch}.{key}": value for key, value in figures.items()}}


def shown(
    arch: str,
    figures: Mapping[str, Any],
    layers: Sequence[Layer],
    *others: str,
) -> Architecture:
    """What is told of a model with these figures and layers; ``block_count`` is theirs where it isn't given."""
    tensors = [tensor(f"blk.{at}.{name}", *shape) for at, layer in enumerate(layers) for name, shape in layer.items()]
    around = [tensor(name, 8, 8) for name in ("token_embd.weight", "output_norm.weight", *others)]
    return architecture(metadata(arch, {"block_count": len(layers), **figures}), [*around, *tensors])


def attention(hidden: int, keys: int, values: int | None = None) -> Layer:
    """Separate projections of so many rows."""
    wide = {"attn_k.weight": (keys, hidden), "attn_v.weight": (keys if values is None else values, hidden)}
    return {"attn_norm.weight": (hidden,), "attn_q.weight": (hidden, hidden), **wide, **FFN}


def dense(
    arch: str, n_layers: int, hidden: int, heads: int, kv: int | None = None, width: int | None = None, **figures: Any
) -> Architecture:
    """Grouped-query attention in every layer; what isn't given isn't in the file."""
    told = {"attention.head_count_kv": kv, "attention.key_length": width, "attention.value_length": width}
    rows = (kv or heads) * (width or hidden // heads)
    return shown(
        arch,
        {
            "embedding_length": hidden,
            "attention.head_count": heads,
            **{key: value for key, value in told.items() if value is not None},
            **{f"attention.{key}": value for key, value in figures.items()},
        },
        [attention(hidden, rows)] * n_layers,
    )


def latent(n_layers: int, heads: int, *, absorbed: bool) -> Architecture:
    """DeepSeek-V2 and V3: as converted since 2025, or before."""
    common = {"embedding_length": 7168, "attention.head_count": heads, "attention.kv_lora_rank": 512,
              "rope.dimension_count": 64}  # fmt: skip
    down = {"attn_kv_a_mqa.weight": (576, 7168), "attn_kv_a_norm.weight": (512,), **FFN}
    if absorbed:
        told = {"attention.head_count_kv": 1, "attention.key_length": 576, "attention.value_length": 512,
                "attention.key_length_mla": 192, "attention.value_length_mla": 128}  # fmt: skip
        up: Layer = {"attn_k_b.weight": (heads, 512, 128), "attn_v_b.weight": (heads, 128, 512)}
    else:
        told = {"attention.head_count_kv": heads, "attention.key_length": 192, "attention.value_length": 128}
        up = {"attn_kv_b.weight": (heads * 256, 512)}
    return shown("deepseek2", common | told, [{**down, **up}] * n_layers)


def delta_hybrid(arch: str, n_layers: int, kv: int, value_heads: int, **figures: Any) -> Architecture:
    """Qwen3-Next and Qwen3.5: gated delta nets, and attention in every fourth layer."""
    inner = value_heads * 128
    figures = {
        "embedding_length": 2048,
        "attention.head_count": 4 * kv,
        "attention.head_count_kv": kv,
        "attention.key_length": 256,
        "attention.value_length": 256,
        "full_attention_interval": 4,
        "ssm.conv_kernel": 4,
        "ssm.inner_size": inner,
        "ssm.state_size": 128,
        "ssm.group_count": 16,
        "ssm.time_step_rank": value_heads,
        **figures,
    }
    net = {
        "attn_qkv.weight": (inner + 4096, 2048),
        "attn_gate.weight": (inner, 2048),
        "ssm_conv1d.weight": (inner + 4096, 4),
        "ssm_a": (value_heads,),
        "ssm_out.weight": (2048, inner),
        **FFN,
    }
    full = attention(2048, kv * 256)
    return shown(arch, figures, [full if at % 4 == 3 else net for at in range(n_layers)])


def mamba_figures(inner: int, state: int, **more: int) -> dict[str, int]:
    return {"embedding_length": inner // 2, "ssm.conv_kernel": 4, "ssm.inner_size": inner, "ssm.state_size": state,
            **{f"ssm.{key}": value for key, value in more.items()}}  # fmt: skip


def mamba_layer(inner: int, convolved: int | None = None) -> Layer:
    return {
        "ssm_in.weight": (2 * inner, inner // 2),
        "ssm_conv1d.weight": (convolved or inner, 4),
        "ssm_a": (inner, 16),
    }


def mamba_2_8b() -> Architecture:
    return shown("mamba", mamba_figures(5120, 16), [mamba_layer(5120)] * 64)


def gpt_oss(n_layers: int) -> Architecture:
    return dense("gpt-oss", n_layers, 2880, 64, 8, 64, sliding_window=128)


PUBLISHED: dict[str, Callable[[], Architecture]] = {
    "gpt-oss-20b": lambda: gpt_oss(24),
    "gpt-oss-120b": lambda: gpt_oss(36),
    "DeepSeek-V3/R1": lambda: latent(61, 128, absorbed=True),
    "DeepSeek-R1/V3 with MLA disabled": lambda: latent(61, 128, absorbed=False),
    "DeepSeek-Coder-V2-Lite": lambda: latent(27, 16, absorbed=False),
    "Qwen3-235B-A22B": lambda: dense("qwen3moe", 94, 4096, 64, 4, 128),
    "Qwen3-1.7B": lambda: dense("qwen3", 28, 2048, 16, 8, 128),
    "Qwen3.5-27B": lambda: delta_hybrid("qwen35", 64, 4, 48),
    "Qwen3.6-27B": lambda: delta_hybrid("qwen35", 64, 4, 48),
    "Qwen3.5-9B": lambda: delta_hybrid("qwen35", 32, 4, 32),
    "Qwen3.6-35B-A3B": lambda: delta_hybrid("qwen35moe", 40, 2, 32),
    "Qwen3.5/3.6-35B-A3B": lambda: delta_hybrid("qwen35moe", 40, 2, 32),
    "Qwen3.5-35B-A3B": lambda: delta_hybrid("qwen35moe", 40, 2, 32),
    "Qwen3-Next-80B": lambda: delta_hybrid("qwen3next", 48, 2, 32),
    "Llama-3.1-8B": lambda: dense("llama", 32, 4096, 32, 8),
    "Llama-3.1-70B": lambda: dense("llama", 80, 8192, 64, 8),
    "Llama-3.2-3B": lambda: dense("llama", 28, 3072, 24, 8),
    "Llama-3.2-1B": lambda: dense("llama", 16, 2048, 32, 8),
    "Vicuna-7B": lambda: dense("llama", 32, 4096, 32),
    "LLaMA-7B": lambda: dense("llama", 32, 4096, 32),
    "OLMoE-1B-7B": lambda: dense("olmoe", 16, 2048, 16, 16),
    "bitnet-2B": lambda: dense("bitnet", 30, 2560, 20, 5),
    "gemma3:4b": lambda: dense("gemma3", 34, 2560, 8, 4, 256, sliding_window=1024),
    "gemma3:27b": lambda: dense("gemma3", 62, 5376, 32, 16, 128, sliding_window=1024),
    "gemma3-270m": lambda: dense("gemma3", 18, 640, 4, 1, 256, sliding_window=512),
    "Mamba-2.8B": mamba_2_8b,
}
"""By the beginnings of the names that measurements have."""


def published(name: str) -> Architecture:
    """The model whose measurement has this name; the longest beginning counts."""
    return PUBLISHED[max((key for key in PUBLISHED if name.startswith(key)), key=len)]()
