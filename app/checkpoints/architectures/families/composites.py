"""Language models with towers beside them."""

from app.checkpoints.architectures.assembly import Composite
from app.checkpoints.architectures.parts import qwen_towers, towers

OUTSIDE = ("language_model.model", "language_model.lm_head")
"""What the body and the head are called where the language model is a module of its own."""

INSIDE = ("model.language_model", "lm_head")
"""The same where it stands inside the body."""

PLAIN = ("model", "lm_head")

COMPOSITES = {
    "llava": Composite(towers.llava, *OUTSIDE, text="llama"),
    "aria": Composite(towers.aria, *OUTSIDE, text="aria_text"),
    "gemma3": Composite(towers.gemma3, *OUTSIDE, text="gemma3_text"),
    "gemma4": Composite(towers.gemma4, *INSIDE, text="gemma4_text"),
    "llama4": Composite(towers.llama4, *OUTSIDE, text="llama4_text"),
    "kimi_k25": Composite(towers.unknown, *OUTSIDE, text="kimi_k2"),
    "kimi_vl": Composite(towers.unknown, *OUTSIDE, text="deepseek_v3"),
    "mistral3": Composite(towers.mistral3, *OUTSIDE, text="mistral"),
    "qwen2_vl": Composite(qwen_towers.qwen2, *PLAIN, text="qwen2"),
    "qwen2_5_vl": Composite(qwen_towers.qwen2_5, *PLAIN, text="qwen2"),
    "qwen3_vl": Composite(qwen_towers.qwen3, *INSIDE, text="qwen3_vl_text"),
    "qwen3_vl_moe": Composite(qwen_towers.qwen3, *INSIDE, text="qwen3_vl_moe_text"),
    "qwen3_5": Composite(qwen_towers.qwen3, *INSIDE, text="qwen3_5_text"),
    "qwen3_5_moe": Composite(qwen_towers.qwen3, *INSIDE, text="qwen3_5_moe_text"),
}
