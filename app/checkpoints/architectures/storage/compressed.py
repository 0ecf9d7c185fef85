"""The format compressed-tensors of llm-compressor: groups of modules, each packed in its own way."""

from app.checkpoints.architectures.fields import MAX_DIMENSION, Fields
from app.checkpoints.architectures.storage import packing
from app.checkpoints.architectures.storage.kept import Kept, kept_of, named
from app.checkpoints.architectures.storage.packing import Pack
from app.checkpoints.architectures.storage.schemes import WITH_HEAD, Quantised, Scheme, Unquantised

MAX_GROUPS = 8
BYTE_FORMATS = ("float-quantized", "int-quantized", "naive-quantized")


def compressed(q: Fields, plain: Unquantised) -> Scheme:
    """The scheme of such a config. Scales are of the type of what isn't quantised. Raises CheckpointError."""
    groups = q.inner("config_groups")
    if not 1 <= len(groups.values) <= MAX_GROUPS:
        raise q.wrong("config_groups", f"has {len(groups.values)} groups, not 1 .. {MAX_GROUPS}")
    packs = tuple(_group(groups.inner(name), q.word("format"), plain) for name in groups.values)
    return Quantised(plain, packs, kept_of(q, "ignore"), WITH_HEAD)


def _group(group: Fields, form: str, plain: Unquantised) -> tuple[Kept | None, Pack]:
    targets = group.items("targets", str) or ()
    modules = None if "Linear" in targets else named(group, "targets", targets)
    form = group.word("format", form)
    if form == "mxfp4-pack-quantized":
        return modules, packing.mxfp4
    if form == "nvfp4-pack-quantized":
        return modules, packing.nvfp4(1 if group.find("input_activations") is None else 2)
    if form == "pack-quantized":
        return modules, _integers(group.inner("weights"), plain)
    if form in BYTE_FORMATS or not form:
        return modules, _bytes(group, plain)
    raise group.wrong("format", f"{ascii(form)[:40]} isn't known here")


def _integers(w: Fields, plain: Unquantised) -> Pack:
    """Integers of a few bits each."""
    zeros, ordered = not w.flag("symmetric", True), w.word("actorder") == "group"
    group = w.whole("group_size", least=-1) if w.word("strategy") == "group" else -1
    return packing.int_groups(w.whole("num_bits", most=8), group, plain.size, zeros=zeros, ordered=ordered)


def _bytes(group: Fields, plain: Unquantised) -> Pack:
    """A byte each, with scales per output, per matrix or per block."""
    w = group.inner("weights")
    w.whole("num_bits", least=8, most=8)
    word = "f8_e4m3" if w.word("type", "int") == "float" else "i8"
    strategy = w.word("strategy")
    if strategy == "channel":
        return packing.rows(word, plain.size)
    if strategy == "tensor":
        return packing.whole(word, plain.size, 2 if _static(group) else 1)
    block = w.items("block_structure", int, 2)
    if strategy == "block" and block and all(1 <= side <= MAX_DIMENSION for side in block):
        return packing.blocks(word, block[0], block[1], plain.size)
    raise w.wrong("strategy", f"{ascii(strategy)[:40]} isn't known for 8 bits; there are channel, tensor and block")


def _static(group: Fields) -> bool:
    """Whether activations have a scale in the checkpoint."""
    if group.find("input_activations") is None:
        return False
    return group.inner("input_activations").find("dynamic") is False
