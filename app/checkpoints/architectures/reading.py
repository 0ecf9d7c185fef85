"""A config.json, read with care: every figure is checked where it is taken, and a fault names its key."""

from collections.abc import Mapping, Sequence
from typing import Any

from app.checkpoints.tensors import CheckpointError

NESTED = ("text_config", "llm_config", "language_config")
"""Where configs of models that also see or hear keep the language model's figures; thinker_config holds one more."""

MAX_LAYERS = 1_000
"""The largest published stack has 126; a config of 10,000 would take seconds."""
MAX_DIMENSION = 2**40


class Config:
    """The language model's figures, else those of the whole config, else its class's defaults.

    Every getter takes the names that a figure goes by, and raises CheckpointError where none is there or the value
    makes no sense.
    """

    def __init__(self, raw: Mapping[str, Any], defaults: Mapping[str, Any] | None = None) -> None:
        """Of a whole config.json."""
        self.whole = raw
        self.text = _language_part(raw)
        self.defaults = defaults or {}

    @property
    def model_type(self) -> str:
        """What the config says it is, the language model's own type first."""
        return str(self.text.get("model_type") or self.whole.get("model_type") or "")

    def with_defaults(self, defaults: Mapping[str, Any]) -> "Config":
        """The same config on top of its class's defaults."""
        return Config(self.whole, defaults)

    def find(self, *keys: str) -> Any:
        """The first that is there and not null, None where none is."""
        for source in (self.text, self.whole, self.defaults):
            for key in keys:
                if source.get(key) is not None:
                    return source[key]
        return None

    def count(self, *keys: str, default: int | None = None, least: int = 1) -> int:
        """A whole number of at least ``least``."""
        value = self.find(*keys)
        if value is None and default is not None:
            return default
        if value is None:
            raise CheckpointError(f"the config of {self.model_type or 'the model'} lacks {keys[0]}")
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MAX_DIMENSION:
            raise CheckpointError(f"{keys[0]} must be a whole number from {least} to 2^40")
        return value

    def flag(self, *keys: str, default: bool = False) -> bool:
        """True or false."""
        value = self.find(*keys)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise CheckpointError(f"{keys[0]} must be true or false")
        return value

    def listed(self, key: str, length: int) -> Sequence[Any] | None:
        """A list with an entry for each layer, None where there is none or an empty one."""
        value = self.find(key)
        if value is None or value == []:
            return None
        if not isinstance(value, list) or len(value) != length:
            raise CheckpointError(f"{key} must have an entry for each of the {length} layers")
        return value

    def indices(self, key: str) -> frozenset[int]:
        """A list of layers by their numbers, empty where there is none."""
        value = self.find(key) or []
        if not isinstance(value, list) or not all(isinstance(at, int) for at in value):
            raise CheckpointError(f"{key} must be a list of layers' numbers")
        return frozenset(value)

    @property
    def n_layers(self) -> int:
        """Layers of the stack."""
        layers = self.count("num_hidden_layers", "n_layer", "num_layers")
        if layers > MAX_LAYERS:
            raise CheckpointError(f"num_hidden_layers is beyond {MAX_LAYERS}")
        return layers

    @property
    def hidden(self) -> int:
        """Width of the stream between layers."""
        return self.count("hidden_size", "d_model", "n_embd")

    @property
    def heads(self) -> int:
        """Attention heads."""
        return self.count("num_attention_heads", "n_head")

    @property
    def kv_heads(self) -> int:
        """Heads of keys and values."""
        return self.count("num_key_value_heads", default=self.heads)

    @property
    def head_dim(self) -> int:
        """Width of a head, where it isn't given the hidden size divided among the heads."""
        given = self.find("head_dim", "attention_head_dim")
        if given is not None:
            return self.count("head_dim", "attention_head_dim")
        return self.quotient(self.hidden, self.heads, "hidden_size", "num_attention_heads")

    @property
    def vocab(self) -> int:
        """Rows of the embedding."""
        return self.count("vocab_size")

    def tied(self, *, default: bool) -> bool:
        """Whether embedding and head share a table; the default is the class's own."""
        return self.flag("tie_word_embeddings", "tie_embeddings", default=default)

    @staticmethod
    def quotient(whole: int, parts: int, what: str, by: str) -> int:
        """A division that must come out even."""
        if whole % parts:
            raise CheckpointError(f"{what} {whole} can't be divided by {by} {parts}")
        return whole // parts


def _language_part(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    thinker = raw.get("thinker_config")
    if isinstance(thinker, Mapping):
        return _language_part(thinker)
    for key in NESTED:
        part = raw.get(key)
        if isinstance(part, Mapping):
            return part
    return raw
