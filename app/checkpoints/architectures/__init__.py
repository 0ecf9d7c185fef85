"""From a config.json alone to the tensors of its checkpoint and the caches of its layers."""

from collections.abc import Mapping, Sequence
from typing import Any

from app.checkpoints.architectures.assembly import Composite, Family, Model, finished
from app.checkpoints.architectures.families import FAMILIES
from app.checkpoints.architectures.families.composites import COMPOSITES
from app.checkpoints.architectures.fields import Fields
from app.checkpoints.architectures.storage.reading import scheme_of
from app.checkpoints.tensors import Architecture, CheckpointError

OTHER_HEADS = ("ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering", "RewardModel")
QUANTISED = frozenset({"quantization_config", "quantization", "compression_config"})
NESTED = ("text_config", "llm_config", "language_config")


def architecture(config: Mapping[str, Any], dtype: str | None = None) -> Architecture:
    """The tensors and caches of the model that a config.json describes.

    Tensors are named and cut as in the published checkpoint, but that routed experts are one tensor per projection,
    (experts, outputs, inputs), whether the checkpoint has them in one piece or one by one. Shapes are those of the
    parameters; bytes are as stored, with the scales and zeros of the config's quantisation. ``dtype`` is what the rest
    is stored in and replaces the config's own word. Towers for images and blocks that predict further tokens have
    names of their own.

    O(tensors), bounded whatever the config says. Raises CheckpointError, naming the architecture that isn't known or
    the key that is missing or makes no sense; where a config leaves the dtype open that is an error too, since a guess
    would be off by two. Sources are named in each family's file.
    """
    name, model = _model(config)
    return finished(name, model, scheme_of(config, dtype))


def shape(config: Mapping[str, Any]) -> Architecture:
    """The same for whom the files tell the bytes: neither the dtype nor the quantisation has to be known.

    Raises CheckpointError as ``architecture`` does for all else.
    """
    return architecture(_unquantised(config), "bf16")


def _unquantised(config: Mapping[str, Any]) -> dict[str, Any]:
    plain = {key: value for key, value in config.items() if key not in QUANTISED}
    return {k: _unquantised(v) if k in NESTED and isinstance(v, Mapping) else v for k, v in plain.items()}


def _model(config: Mapping[str, Any]) -> tuple[str, Model]:
    c = Fields(config)
    name = _name(c)
    if name in COMPOSITES:
        return name, _composite(c, COMPOSITES[name])
    if name in FAMILIES:
        return name, FAMILIES[name].build(c)
    raise CheckpointError(f"config: {_unknown(c, name)}")


def _composite(c: Fields, of: Composite) -> Model:
    key = next((key for key in NESTED if c.find(key) is not None), None)
    if key is None:
        inner, family = c, FAMILIES[of.text]
    else:
        kind = c.inner(key).word("model_type", of.text)
        family = FAMILIES.get(kind) or _no_family(c, kind)
        inner = c.inner(key, {**family.defaults, "tie_word_embeddings": c.find("tie_word_embeddings")})
    model = family.build(inner).renamed(of.rename)
    if c.find("vision_config") is None:
        return model
    return model.beside(of.towers(c, inner.whole("hidden_size")))


def _no_family(c: Fields, kind: str) -> Family:
    raise CheckpointError(f"config: {c.where}text_config: {_unknown(c, kind)}")


def _name(c: Fields) -> str:
    """The model's type; a checkpoint of the package mamba_ssm is known by its keys."""
    built = c.items("architectures", str) or ("",)
    if built[0].endswith(OTHER_HEADS):
        raise CheckpointError(f"config: {ascii(built[0])[:60]} has another head than a language model's")
    name = c.word("model_type")
    if not name and c.find("ssm_cfg") is not None:
        return "mamba_ssm"
    if not name:
        raise c.wrong("model_type", f"is missing{_called(built)}")
    return name


def _unknown(c: Fields, name: str) -> str:
    """What to say of a type that isn't known."""
    called = _called(c.items("architectures", str) or ())
    return (
        f"the architecture {ascii(name)[:60]}{called} isn't known, so neither its tensors nor its caches are; "
        "give the checkpoint's tensors, or the cost itself"
    )


def _called(built: Sequence[str]) -> str:
    """The class's name, for a person."""
    return f" ({ascii(built[0])[:60]})" if built and built[0] else ""
