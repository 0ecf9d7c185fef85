"""Bytes of a packed matrix with its scales and zeros, by quantiser.

A shape is (.., outputs, inputs); stacks of experts are as many matrices. Each function's docstring names the layout's
source. Everything is exact but where it says so.
"""

from collections.abc import Callable
from math import prod

Shape = tuple[int, ...]
Packed = tuple[str, int]
"""The word for the type of the packed weights, and all bytes of a matrix."""

Pack = Callable[[Shape], Packed | None]
"""None where the method leaves a matrix of that shape alone."""


def up(a: int, b: int) -> int:
    """``a / b``, rounded up."""
    return -(-a // b)


def blocks(word: str, high: int, wide: int, scale_bytes: int = 4) -> Pack:
    """A byte each, and a scale per block (DeepSeek-V3's README_WEIGHTS: float32 per 128 x 128)."""

    def pack(shape: Shape) -> Packed:
        count, out, into = matrices(shape)
        return word, count * (out * into + scale_bytes * up(out, high) * up(into, wide))

    return pack


def rows(word: str, scale_bytes: int) -> Pack:
    """A byte each, and a scale per output."""

    def pack(shape: Shape) -> Packed:
        count, out, into = matrices(shape)
        return word, count * out * (into + scale_bytes)

    return pack


def whole(word: str, scale_bytes: int, scales: int = 1) -> Pack:
    """A byte each, and a scale per matrix, two where activations have one as well."""
    return lambda shape: (word, prod(shape) + scale_bytes * scales * matrices(shape)[0])


def mxfp4(shape: Shape) -> Packed:
    """Four bits each, and a byte of scale per 32 inputs (OCP Microscaling Formats 1.0)."""
    count, out, into = matrices(shape)
    return "u8", count * out * (up(into, 2) + up(into, 32))


def nvfp4(globals_: int) -> Pack:
    """Four bits each, a float8 scale per 16 inputs, and float32 scales of the whole matrix."""

    def pack(shape: Shape) -> Packed:
        count, out, into = matrices(shape)
        return "u8", count * (out * (up(into, 2) + up(into, 16)) + 4 * globals_)

    return pack


def awq(bits: int, group: int) -> Pack:
    """AutoAWQ's GEMM layout: weights and zeros packed in int32 along the outputs, float16 scales per group."""

    def pack(shape: Shape) -> Packed:
        count, out, into = matrices(shape)
        row = 4 * up(out * bits, 32)
        groups = up(into, group) if group > 0 else 1
        return "i32", count * (into * row + groups * row + groups * out * 2)

    return pack


def gptq(bits: int, group: int) -> Pack:
    """AutoGPTQ's layout: weights packed in int32 along the inputs, zeros along the outputs.

    Float16 scales per group, and the group of each input. Very old checkpoints also have a bias of zeros everywhere.
    """

    def pack(shape: Shape) -> Packed:
        count, out, into = matrices(shape)
        groups = up(into, group) if group > 0 else 1
        weights, zeros = 4 * up(into * bits, 32) * out, 4 * up(out * bits, 32) * groups
        return "i32", count * (weights + zeros + groups * out * 2 + into * 4)

    return pack


def int_groups(bits: int, group: int, scale_bytes: int, *, zeros: bool, ordered: bool) -> Pack:
    """The layout ``pack-quantized`` of compressed-tensors: weights packed in int32 along the inputs, scales per group.

    The shape stands beside them as two int64; zeros packed along the outputs and the group of each input where the
    config has them.
    """

    def pack(shape: Shape) -> Packed:
        count, out, into = matrices(shape)
        groups = up(into, group) if group > 0 else 1
        each = 4 * up(into * bits, 32) * out + groups * out * scale_bytes + 16
        each += 4 * up(out * bits, 32) * groups if zeros else 0
        each += 4 * into if ordered else 0
        return "i32", count * each

    return pack


def mlx(bits: int, group: int, scale_bytes: int) -> Pack:
    """MLX: weights packed in uint32, a scale and a bias per group; what the group doesn't divide stays as it is."""

    def pack(shape: Shape) -> Packed | None:
        count, out, into = matrices(shape)
        if into % group:
            return None
        return "u32", count * out * (into * bits // 8 + into // group * 2 * scale_bytes)

    return pack


def bnb_int8(shape: Shape) -> Packed:
    """The LLM.int8 of bitsandbytes: a byte each, a float32 per output, a byte for the layout."""
    count, out, into = matrices(shape)
    return "i8", count * (out * into + 4 * out + 1)


def bnb_4bit(*, nested: bool) -> Pack:
    """The 4 bits of bitsandbytes: the largest of each 64 weights, itself quantised where ``nested``, a code book.

    Each matrix has a JSON of some 100 to 200 bytes more, whose length only the file shows: not counted.
    """

    def pack(shape: Shape) -> Packed:
        count, out, into = matrices(shape)
        largest = up(out * into, 64)
        scales = largest + 4 * up(largest, 256) + 256 * 4 if nested else 4 * largest
        return "u8", count * (up(out * into, 2) + scales + 16 * 4)

    return pack


def bitnet(scale_bytes: int) -> Pack:
    """BitNet b1.58: four ternary weights in a byte along the outputs, one scale per matrix."""

    def pack(shape: Shape) -> Packed:
        count, out, into = matrices(shape)
        return "u8", count * (up(out, 4) * into + scale_bytes)

    return pack


def matrices(shape: Shape) -> tuple[int, int, int]:
    """How many matrices there are, and the outputs and inputs of one."""
    *lead, out, into = shape
    return prod(lead), out, into
