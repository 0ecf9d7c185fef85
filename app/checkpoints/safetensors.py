"""Headers of safetensors files: what tensors there are and where they lie. No weight is read.

A file is a length (u64, little endian), so many bytes of JSON, and data that the JSON's tensors tile without gaps.
Bytes are taken from the offsets, since packed formats hide behind plain dtypes.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import jiter

from app.checkpoints.tensors import CheckpointError, Tensor
from app.placement.units import INT_MAX

MAX_HEADER_BYTES = 4 * 1024 * 1024
"""The format allows 100 MB. A tensor takes about 120 bytes, so this is 30,000 in one file; the largest published shards
have a tenth."""

MAX_INDEX_BYTES = 32 * 1024 * 1024
MAX_SHARDS = 10_000
MAX_RANK = 16
PAIR = range(2, 3)

BITS = {
    **dict.fromkeys(("f64", "i64", "u64", "c64"), 64),
    **dict.fromkeys(("f32", "i32", "u32"), 32),
    **dict.fromkeys(("f16", "bf16", "i16", "u16"), 16),
    **dict.fromkeys(("i8", "u8", "bool", "f8_e4m3", "f8_e5m2", "f8_e8m0", "f8_e4m3fnuz", "f8_e5m2fnuz"), 8),
    **dict.fromkeys(("f6_e2m3", "f6_e3m2"), 6),
    "f4": 4,
}
"""Bits of an element, by the format's dtypes in lower case."""

MARKS = (b"{", b"[", b",")
BYTES_PER_MARK = 5
"""JSON of tensors has a mark in six bytes or more. Fewer bytes a mark mean containers that take far more memory than
text, and are no header."""

PART = re.compile(r"-(\d{5,6})-of-(\d{5,6})\.safetensors$")
SHARD = re.compile(rb'"([^"\\/]{1,255}\.safetensors)"')
TOTAL = re.compile(rb'"total_size"\s*:\s*(\d{1,19})')
NOT_THE_MODEL = re.compile(r"^(consolidated|adapter|optimizer|training)")
"""Other formats' copies of the same weights, and what isn't weights."""


@dataclass(frozen=True, slots=True)
class Files:
    """The tensors of all files of a model, and what a person should know about them."""

    tensors: tuple[Tensor, ...]
    notes: tuple[str, ...] = ()


def element_bits(dtype: str) -> int | None:
    """Bits of an element of a safetensors dtype in lower case, None where it isn't known."""
    return BITS.get(dtype)


def read_all(path: Path) -> Files:
    """The tensors of a file, of a folder's shards, or of the shards that an index names. Headers only.

    O(tensors). Raises CheckpointError where a shard is missing or broken or a tensor stands in two, and OSError.
    """
    total = None
    if path.is_dir():
        indexes = sorted(path.glob("*.safetensors.index.json"))
        path = indexes[0] if len(indexes) == 1 else path
    if path.is_dir():
        shards = _shards_in(path)
    elif path.suffix == ".json":
        shards, total = _shards_of_index(path)
    else:
        shards = [path]
    tensors = tuple(tensor for shard in shards for tensor in read(shard))
    _check_distinct(tensors)
    stored = sum(t.n_bytes for t in tensors)
    if total is None or total == stored:
        return Files(tensors)
    return Files(tensors, (f"the index says total_size {total}, the headers add up to {stored}",))


def read(path: Path) -> tuple[Tensor, ...]:
    """The tensors of one file in the order of its header. O(tensors). Raises CheckpointError, OSError."""
    with path.open("rb") as file:
        header, data_bytes = _header(file, path.name)
    entries = [_tensor(name, entry, data_bytes) for name, entry in header.items() if name != "__metadata__"]
    _check_tiling([span for _, span in entries], data_bytes, path.name)
    return tuple(tensor for tensor, _ in entries)


def _header(file: BinaryIO, name: str) -> tuple[Mapping[str, Any], int]:
    """The header as JSON, and how many bytes follow it."""
    size = os.fstat(file.fileno()).st_size
    length = int.from_bytes(file.read(8), "little")
    if length > size - 8:
        raise CheckpointError(f"{name} is cut short: its header has {length} bytes, the file {size}")
    if length > MAX_HEADER_BYTES:
        raise CheckpointError(f"{name} has a header of {length} bytes; up to {MAX_HEADER_BYTES} are read")
    raw = file.read(length)
    if sum(map(raw.count, MARKS)) * BYTES_PER_MARK > len(raw) + 1000:
        raise CheckpointError(f"the header of {name} is no list of tensors")
    try:
        header = jiter.from_json(raw, allow_inf_nan=False, catch_duplicate_keys=True)
    except ValueError as error:
        raise CheckpointError(f"the header of {name} is not JSON: {str(error)[:100]}") from None
    if not isinstance(header, dict):
        raise CheckpointError(f"the header of {name} is no object")
    return header, size - 8 - length


def _tensor(name: str, entry: Any, data_bytes: int) -> tuple[Tensor, tuple[int, int]]:
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise CheckpointError(f"tensor {name[:80]!r} needs dtype, shape and data_offsets, and nothing else")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or not _are_sizes(shape, range(MAX_RANK + 1)) or not _are_sizes(offsets, PAIR):
        raise CheckpointError(f"tensor {name[:80]!r} has a dtype, shape or data_offsets of the wrong kind")
    begin, end = offsets
    if not begin <= end <= data_bytes:
        raise CheckpointError(f"tensor {name[:80]!r} lies outside of the file's data")
    kind, bits = dtype.lower()[:32], BITS.get(dtype.lower())
    if bits is not None and prod(shape) * bits != (end - begin) * 8:
        raise CheckpointError(f"tensor {name[:80]!r} has another number of bytes than its shape and dtype say")
    return Tensor(name, tuple(shape), kind, end - begin), (begin, end)


def _are_sizes(value: Any, lengths: range) -> bool:
    """Whether it is a list of one of these lengths of numbers that can be sizes."""
    if not isinstance(value, list) or len(value) not in lengths:
        return False
    return all(isinstance(n, int) and not isinstance(n, bool) and 0 <= n <= INT_MAX for n in value)


def _check_tiling(spans: Iterable[tuple[int, int]], data_bytes: int, name: str) -> None:
    """Raise CheckpointError where tensors overlap or leave gaps: such a file isn't what it says."""
    ordered = [(0, 0), *sorted(spans), (data_bytes, data_bytes)]
    if any(end != begin for (_, end), (begin, _) in pairwise(ordered)):
        raise CheckpointError(f"the tensors of {name} overlap or leave gaps")


def _check_distinct(tensors: Iterable[Tensor]) -> None:
    seen: set[str] = set()
    for tensor in tensors:
        if tensor.name in seen:
            raise CheckpointError(f"tensor {tensor.name[:80]!r} stands in two files")
        seen.add(tensor.name)


def _shards_in(folder: Path) -> list[Path]:
    """A folder's files that belong to the model; all parts must be there."""
    found = [path for path in sorted(folder.glob("*.safetensors")) if not NOT_THE_MODEL.match(path.name)]
    if not found:
        raise CheckpointError(f"there are no safetensors files in {folder.name or folder}")
    if len(found) > MAX_SHARDS:
        raise CheckpointError(f"more than {MAX_SHARDS} files")
    names = {path.name for path in found}
    for missing in _missing(names):
        raise CheckpointError(f"{missing} is missing")
    return found


def _missing(names: set[str]) -> Iterator[str]:
    """Parts that the names of the other parts imply, the first of each set."""
    for name in sorted(names):
        part = PART.search(name)
        if part and int(part[2]) <= MAX_SHARDS:
            stem, width = name[: part.start()], len(part[1])
            every = (f"{stem}-{at:0{width}}-of-{part[2]}.safetensors" for at in range(1, int(part[2]) + 1))
            yield from (other for other in every if other not in names)


def _shards_of_index(path: Path) -> tuple[list[Path], int | None]:
    """The files that an index names, beside it, and the total that it states.

    Its 100,000 entries are searched for names rather than read into memory; what tensors there are, the headers say.
    """
    if path.stat().st_size > MAX_INDEX_BYTES:
        raise CheckpointError(f"{path.name} is larger than {MAX_INDEX_BYTES} bytes")
    raw = path.read_bytes()
    names: set[str] = set()
    for found in SHARD.finditer(raw):
        names.add(found[1].decode(errors="replace"))
        if len(names) > MAX_SHARDS:
            raise CheckpointError(f"{path.name} names more than {MAX_SHARDS} files")
    if not names:
        raise CheckpointError(f"{path.name} names no safetensors file")
    shards = [path.parent / name for name in sorted(names)]
    for shard in shards:
        if not shard.is_file():
            raise CheckpointError(f"{shard.name}, which {path.name} names, is missing")
    total = TOTAL.search(raw)
    return shards, int(total[1]) if total else None
