"""The methods that a config's ``quantization_config`` may name, and what each leaves alone."""

from collections.abc import Callable, Mapping

from app.checkpoints.architectures.fields import MAX_DIMENSION, Fields
from app.checkpoints.architectures.storage import packing
from app.checkpoints.architectures.storage.compressed import compressed
from app.checkpoints.architectures.storage.kept import Kept, kept_of
from app.checkpoints.architectures.storage.packing import Pack
from app.checkpoints.architectures.storage.schemes import MATRICES, WITH_HEAD, Quantised, Scheme, Unquantised


def _all(pack: Pack) -> tuple[tuple[Kept | None, Pack], ...]:
    """One group of all modules."""
    return ((None, pack),)


def _fp8(q: Fields, plain: Unquantised) -> Scheme:
    kept = kept_of(q, "modules_to_not_convert", "ignored_layers")
    block = q.items("weight_block_size", int, 2)
    if block is None:
        static = q.word("activation_scheme", "dynamic") == "static"
        return Quantised(plain, _all(packing.whole("f8_e4m3", 4, 2 if static else 1)), kept)
    if not all(1 <= side <= MAX_DIMENSION for side in block):
        raise q.wrong("weight_block_size", "is not two positive sizes")
    return Quantised(plain, _all(packing.blocks("f8_e4m3", *block)), kept)


def _fbgemm(q: Fields, plain: Unquantised) -> Scheme:
    return Quantised(plain, _all(packing.rows("f8_e4m3", 4)), kept_of(q, "modules_to_not_convert"))


def _mxfp4(_q: Fields, plain: Unquantised) -> Scheme:
    """gpt-oss's: the experts alone, whatever else the list of what isn't converted says."""
    return Quantised(plain, _all(packing.mxfp4), roles=frozenset({"experts"}), stack_only=True)


def _awq(q: Fields, plain: Unquantised) -> Scheme:
    if q.word("version", "gemm").lower() != "gemm":
        raise q.wrong("version", "isn't gemm, the only layout of AWQ that is known here")
    bits = q.whole("bits", "w_bit", most=8)
    pack = packing.awq(bits, q.whole("group_size", "q_group_size", least=-1))
    return Quantised(plain, _all(pack), kept_of(q, "modules_to_not_convert"), stack_only=True)


def _gptq(q: Fields, plain: Unquantised) -> Scheme:
    pack = packing.gptq(q.whole("bits", most=8), q.whole("group_size", least=-1))
    roles = WITH_HEAD if q.flag("lm_head") else MATRICES
    return Quantised(plain, _all(pack), kept_of(q, "modules_to_not_convert"), roles, stack_only=True)


def _bitsandbytes(q: Fields, plain: Unquantised) -> Scheme:
    kept = kept_of(q, "llm_int8_skip_modules")
    if q.flag("load_in_4bit") or q.flag("_load_in_4bit"):
        return Quantised(plain, _all(packing.bnb_4bit(nested=q.flag("bnb_4bit_use_double_quant"))), kept)
    if q.flag("load_in_8bit") or q.flag("_load_in_8bit"):
        return Quantised(plain, _all(packing.bnb_int8), kept)
    raise q.wrong("load_in_4bit", "and load_in_8bit are both missing or false")


def _bitnet(q: Fields, plain: Unquantised) -> Scheme:
    if q.word("quantization_mode", "offline") != "offline":
        return plain
    return Quantised(plain, _all(packing.bitnet(plain.size)), kept_of(q, "modules_to_not_convert"))


def _modelopt(q: Fields, plain: Unquantised) -> Scheme:
    kept = kept_of(q, "ignore", "exclude_modules")
    packs = {"FP8": packing.whole("f8_e4m3", 4, 2), "NVFP4": packing.nvfp4(2)}
    algorithm = q.word("quant_algo")
    if algorithm not in packs:
        raise q.wrong("quant_algo", f"{ascii(algorithm)[:40]} isn't known; there are {', '.join(packs)}")
    return Quantised(plain, _all(packs[algorithm]), kept, WITH_HEAD)


METHODS: Mapping[str, Callable[[Fields, Unquantised], Scheme]] = {
    "fp8": _fp8,
    "fbgemm_fp8": _fbgemm,
    "mxfp4": _mxfp4,
    "awq": _awq,
    "gptq": _gptq,
    "bitsandbytes": _bitsandbytes,
    "bitnet": _bitnet,
    "modelopt": _modelopt,
    "compressed-tensors": compressed,
}

LEAVES_BF16 = frozenset({"fp8", "mxfp4"})
"""Methods whose checkpoints have the rest in bfloat16 even where the config names no dtype."""
