"""Feed-forward parts: gated and plain, and experts of them."""

from dataclasses import dataclass

from app.checkpoints.architectures.fields import Fields
from app.checkpoints.architectures.weights import NOTHING, Part, experts, linear, vector

GATED = ("gate_proj", "up_proj", "down_proj")


@dataclass(frozen=True, slots=True)
class Experts:
    """Routed experts of a layer, those that one token reads, and the width of each."""

    n: int
    per_token: int
    width: int


def routed(c: Fields, width: str, *, count: tuple[str, ...] = ("num_experts", "num_local_experts")) -> Experts:
    """The config's experts; ``width`` is the key of theirs. Raises CheckpointError."""
    n = c.whole(*count)
    per_token = c.whole("num_experts_per_tok", "experts_per_token", "num_experts_per_token", "moe_topk")
    if per_token > n:
        raise c.wrong("num_experts_per_tok", f"is {per_token}, more than the {n} experts")
    return Experts(n, per_token, c.whole(width))


def gated(hidden: int, width: int, *, bias: bool = False, names: tuple[str, str, str] = GATED) -> Part:
    """A gated feed-forward: gate, up, down."""
    gate, up, down = names
    return (
        linear(gate, hidden, width, bias=bias)
        + linear(up, hidden, width, bias=bias)
        + linear(down, width, hidden, bias=bias)
    )


def joined(hidden: int, width: int, names: tuple[str, str]) -> Part:
    """A gated feed-forward with gate and up in one matrix."""
    return linear(names[0], hidden, 2 * width) + linear(names[1], width, hidden)


def plain(hidden: int, width: int, names: tuple[str, str], *, bias: bool = False) -> Part:
    """Up, an activation, down."""
    return linear(names[0], hidden, width, bias=bias) + linear(names[1], width, hidden, bias=bias)


def router(hidden: int, n: int, name: str = "gate", *, bias: bool = False) -> Part:
    """What chooses the experts; quantisers leave it alone."""
    return linear(name, hidden, n, bias=bias, role="kept")


def balance(n: int, name: str = "gate.e_score_correction_bias") -> Part:
    """A bias per expert that evens out their load (arXiv 2408.15664); DeepSeek's checkpoints keep it in float32."""
    return vector(name, n, dtype="f32")


def gated_experts(hidden: int, of: Experts, names: tuple[str, str, str] = GATED) -> Part:
    """Gated experts, one tensor per projection."""
    gate, up, down = (f"experts.{name}.weight" for name in names)
    return (
        experts(gate, of.n, hidden, of.width)
        + experts(up, of.n, hidden, of.width)
        + experts(down, of.n, of.width, hidden)
    )


def joined_experts(hidden: int, of: Experts, names: tuple[str, str] = ("gate_up_proj", "down_proj")) -> Part:
    """Gated experts with gate and up in one tensor, as checkpoints have them that store experts in one piece."""
    into, out = (f"experts.{name}" for name in names)
    return experts(into, of.n, hidden, 2 * of.width) + experts(out, of.n, of.width, hidden)


def shared_expert(hidden: int, width: int | None) -> Part:
    """An expert for every token behind a gate of its own, as Qwen's have it; nothing without a width."""
    if width is None:
        return NOTHING
    gate = linear("shared_expert_gate", hidden, 1, role="kept")
    return gated(hidden, width).under("shared_expert") + gate
