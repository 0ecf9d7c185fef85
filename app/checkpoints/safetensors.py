"""Headers of safetensors files: what tensors there are and where they lie. No weight is read.

A file is a length (u64, little endian), so many bytes of JSON, and data that the JSON's tensors tile without gaps (the
format's README). Bytes are taken from the offsets, since packed formats hide behind plain dtypes.

The JSON is walked over member by member, and only one member at a time becomes objects: parsed as a whole, a hostile
header takes 37 times its length.
"""

import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, pairwise
from math import prod
from pathlib import Path
from typing import Any

import jiter

from app.checkpoints.tensors import CheckpointError, Tensor
from app.placement.units import INT_MAX

MAX_HEADER_BYTES = 8 * 1024 * 1024
"""The format allows 100 MB. Published headers stay below 1 MB, DeepSeek-V3's tensors all in one file would take 11."""

MAX_TENSORS = 32_768
"""In one file: 0.4 s and 25 MiB. Published files have some thousand; a whole Qwen3-30B-A3B in one has 18,867."""

MAX_MEMBER_BYTES = 4_096
"""Of one tensor, its name included; usual are 120."""

MAX_INDEX_BYTES = 32 * 1024 * 1024
MAX_INDEXED = 200_000
"""In all files. Kimi-K2 has 141,000."""

MAX_SHARDS = 10_000
QUOTES = 4
"""Of an index's line."""

MAX_TOLD = 100
MAX_DIGITS = 20
MAX_RANK = 8
MAX_NAME_CHARS = 1_024

BITS = {
    **dict.fromkeys(("f64", "i64", "u64", "c64"), 64),
    **dict.fromkeys(("f32", "i32", "u32"), 32),
    **dict.fromkeys(("f16", "bf16", "i16", "u16"), 16),
    **dict.fromkeys(("i8", "u8", "bool", "f8_e4m3", "f8_e5m2", "f8_e8m0", "f8_e4m3fnuz", "f8_e5m2fnuz"), 8),
    **dict.fromkeys(("f6_e2m3", "f6_e3m2"), 6),
    "f4": 4,
}
"""Bits of an element, by the format's dtypes in lower case."""

# No alternative begins as another does and no repetition gives back, so that a match takes time linear in its length.
STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
FLAT = rb'\{(?:[^"{}]++|' + STRING + rb")*+\}"
MEMBER = re.compile(
    rb"\s*+(" + STRING + rb")\s*+:\s*+(" + FLAT + rb"|" + STRING + rb'|[^\s",:{}\[\]]++)\s*+([,}])', re.DOTALL
)
"""A name, its value (an object without objects in it, a string, or a word), and whether more follows."""

EMPTY = re.compile(rb"\s*+\}")

PART = re.compile(r"-(\d{5,6})-of-(\d{5,6})\.safetensors$")
PLAIN = re.compile(r"[\w .+@=()-]{1,200}\.safetensors", re.ASCII)
NOT_THE_MODEL = re.compile(r"^(consolidated|adapter|optimizer|training)")
"""Other formats' copies of the same weights, and what isn't weights."""


@dataclass(frozen=True, slots=True)
class Files:
    """The tensors of all files of a model, and what a person should know about them."""

    tensors: tuple[Tensor, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Index:
    """An index: ``map_at`` is where its ``weight_map`` starts, ``names`` are its files, by their spelling in JSON."""

    file: str
    raw: bytes
    map_at: int
    names: Mapping[bytes, str]
    total: int | None


def element_bits(dtype: str) -> int | None:
    """Bits of an element of a safetensors dtype in lower case, None where it isn't known."""
    return BITS.get(dtype)


def read(path: Path) -> tuple[Tensor, ...]:
    """The tensors of one file in the order of its header.

    O(tensors log tensors), within a second and 64 MiB whatever the header says. ``__metadata__`` is passed over. Raises
    CheckpointError for a file that is cut short, isn't what it says or is beyond the bounds, and OSError.
    """
    raw, data_bytes = _header(path)
    tensors: list[Tensor] = []
    spans: list[tuple[int, int]] = []
    seen: set[str] = set()
    for found in _members(raw, 0, path.name):
        name, entry = _member(found, path.name)
        if name in seen:
            raise CheckpointError(f"{path.name}: {name[:80]!r} stands there twice")
        seen.add(name)
        if name == "__metadata__":
            continue
        if len(tensors) == MAX_TENSORS:
            raise CheckpointError(f"{path.name} has more than {MAX_TENSORS} tensors")
        tensor, span = _tensor(name, entry, data_bytes, path.name)
        tensors.append(tensor)
        spans.append(span)
    _check_tiling(spans, data_bytes, path.name)
    return tuple(tensors)


def read_all(path: Path) -> Files:
    """The tensors of a model: of a file and the other parts of its set, of a folder, or of the files an index names.

    Of a folder everything but the model's own safetensors files is left out: ``consolidated*``, adapters, subfolders,
    pickles. That an index states another ``total_size`` is a note. O(tensors log tensors), headers only. Raises
    CheckpointError where a part is missing or broken, a tensor stands in two files or not where the index says, or an
    index names what lies outside of its folder; and OSError.
    """
    shards, index = _shards(path)
    tensors: list[Tensor] = []
    owner: dict[str, str] = {}
    for shard in shards:
        for tensor in read(shard):
            if tensor.name in owner:
                raise CheckpointError(
                    f"tensor {tensor.name[:80]!r} stands in two files, {owner[tensor.name]} and {shard.name}"
                )
            owner[tensor.name] = shard.name
            tensors.append(tensor)
        if len(tensors) > MAX_INDEXED:
            raise CheckpointError(f"{path.name} has more than {MAX_INDEXED} tensors")
    if index is None:
        return Files(tuple(tensors))
    _check_places(index, owner)
    return Files(tuple(tensors), _notes(index, sum(t.n_bytes for t in tensors)))


def _header(path: Path) -> tuple[bytes, int]:
    """The header's JSON, and how many bytes follow it."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise CheckpointError(f"{path.name} is no file")
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > status.st_size - 8:
            raise CheckpointError(f"{path.name} is cut short: its header has {length} bytes, the file {status.st_size}")
        if length > MAX_HEADER_BYTES:
            raise CheckpointError(f"{path.name} has a header of {length} bytes; up to {MAX_HEADER_BYTES} are read")
        return file.read(length), status.st_size - 8 - length


def _members(raw: bytes, at: int, file: str) -> Iterator[re.Match[bytes]]:
    """The members of the object whose brace is ``at``, as ``MEMBER`` has them.

    Raises CheckpointError when it comes to what is no such object. What follows the outermost must be blank.
    """
    outermost = at == 0
    if raw[at : at + 1] != b"{":
        raise CheckpointError(f"{file} has no JSON object where one must start")
    empty = EMPTY.match(raw, at + 1)
    at, more = (empty.end(), b"}") if empty else (at + 1, b",")
    while more == b",":
        found = MEMBER.match(raw, at)
        if found is None:
            raise CheckpointError(f"{file}: its JSON is broken at byte {at}, or deeper than a list of tensors")
        yield found
        at, more = found.end(), found[3]
    if outermost and raw[at:].strip():
        raise CheckpointError(f"{file}: something follows its JSON at byte {at}")


def _member(found: re.Match[bytes], file: str) -> tuple[str, Any]:
    """A member's name, and its value unless it is the metadata's."""
    if found[1] == b'"__metadata__"':
        return "__metadata__", None
    begin, end = found.start(1), found.end(2)
    if end - begin > MAX_MEMBER_BYTES:
        raise CheckpointError(f"{file}: {_shown(found[1])} takes {end - begin} bytes of its header")
    ((name, value),) = _parsed(b"{" + found.string[begin:end] + b"}", file).items()
    if not 0 < len(name) <= MAX_NAME_CHARS or not isinstance(value, dict):
        raise CheckpointError(f"{file}: {name[:80]!r} is no name of a tensor, or names none")
    return name, value


def _parsed(raw: bytes, file: str) -> Any:
    try:
        return jiter.from_json(raw, allow_inf_nan=False, cache_mode="keys", catch_duplicate_keys=True)
    except ValueError as error:
        raise CheckpointError(f"{file}: {_shown(raw)} is not JSON: {str(error)[:100]}") from None


def _shown(raw: bytes) -> str:
    """The start of what stands in a file, as a message may have it."""
    return repr(raw[:80].decode(errors="replace").strip('"'))


def _tensor(name: str, entry: Any, data_bytes: int, file: str) -> tuple[Tensor, tuple[int, int]]:
    """The tensor, and where it lies in the data."""
    dtype, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    if not isinstance(dtype, str) or not _are_sizes(shape) or not _are_sizes(offsets) or len(offsets) != len("be"):
        raise CheckpointError(f"{file}: tensor {name[:80]!r} needs a dtype, a shape and two data_offsets")
    begin, end = offsets
    if not begin <= end <= data_bytes:
        raise CheckpointError(f"{file}: tensor {name[:80]!r} lies outside of the file's data")
    kind = dtype.lower()[:32]
    bits, count = BITS.get(kind), prod(shape)
    if count > INT_MAX or (bits is not None and count * bits != (end - begin) * 8):
        raise CheckpointError(
            f"{file}: tensor {name[:80]!r} has {end - begin} bytes; its dtype and shape say otherwise"
        )
    return Tensor(name, tuple(shape), kind, end - begin), (begin, end)


def _are_sizes(value: Any) -> bool:
    """Whether it is a short list of whole numbers up to 2^63-1."""
    if not isinstance(value, list) or len(value) > MAX_RANK:
        return False
    return all(type(number) is int and 0 <= number <= INT_MAX for number in value)


def _check_tiling(spans: Iterable[tuple[int, int]], data_bytes: int, file: str) -> None:
    """Raise CheckpointError where tensors overlap or leave gaps: such a file isn't what it says."""
    ordered = [(0, 0), *sorted(spans), (data_bytes, data_bytes)]
    for (_, end), (begin, _) in pairwise(ordered):
        if end != begin:
            raise CheckpointError(
                f"the tensors of {file} {'overlap' if begin < end else 'leave a gap'} at byte {begin}"
            )


def _shards(path: Path) -> tuple[list[Path], _Index | None]:
    """The files of a model, and the index that names them."""
    if path.is_dir():
        indexes = [found for found in sorted(path.glob("*.safetensors.index.json")) if _is_of_the_model(found)]
        if len(indexes) > 1:
            raise CheckpointError(f"{path.name} has {len(indexes)} indexes; name one: {indexes[0].name}, ..")
        return _shards(indexes[0]) if indexes else (_shards_in(path), None)
    if path.suffix == ".json":
        index = _index(path)
        return [_beside(path, name) for name in sorted(index.names.values())], index
    part = PART.search(path.name)
    return ([path] if part is None else _set_of(path, part)), None


def _is_of_the_model(path: Path) -> bool:
    return NOT_THE_MODEL.match(path.name) is None


def _shards_in(folder: Path) -> list[Path]:
    """A folder's files that belong to the model; of each set all parts must be there."""
    found = [path for path in sorted(folder.glob("*.safetensors")) if _is_of_the_model(path)]
    if not found:
        raise CheckpointError(
            f"there is no model's safetensors file in {folder.name or folder} (consolidated and adapter files are left "
            "out; name one to have it read)"
        )
    if len(found) > MAX_SHARDS:
        raise CheckpointError(f"{folder.name} has more than {MAX_SHARDS} files")
    parts = [(path, part) for path in found if (part := PART.search(path.name))]
    sets = {(path.name[: part.start()], part[2]): (path, part) for path, part in parts}
    for path, part in sets.values():
        _set_of(path, part)
    return found


def _set_of(path: Path, part: re.Match[str]) -> list[Path]:
    """All parts of the set that one part's name tells of."""
    if not 1 <= int(part[1]) <= int(part[2]) <= MAX_SHARDS:
        raise CheckpointError(f"{path.name} can't be one of so many parts")
    stem, width = path.name[: part.start()], len(part[1])
    parts = [path.with_name(f"{stem}-{at:0{width}}-of-{part[2]}.safetensors") for at in range(1, int(part[2]) + 1)]
    for other in parts:
        if not other.is_file():
            raise CheckpointError(f"{other.name} is missing")
    return parts


def _index(path: Path) -> _Index:
    if path.stat().st_size > MAX_INDEX_BYTES:
        raise CheckpointError(f"{path.name} is larger than {MAX_INDEX_BYTES} bytes")
    raw = path.read_bytes()
    if raw.count(b'"') > QUOTES * MAX_INDEXED + MAX_TOLD:  # before a second is spent on walking over them
        raise CheckpointError(f"{path.name} names more than {MAX_INDEXED} tensors")
    map_at, total = None, None
    for found in _first(_members(raw, 0, path.name)):
        if found[1] == b'"weight_map"':
            map_at = found.start(2)
        elif found[1] == b'"metadata"':
            total = _total(raw, found.start(2), path.name)
    if map_at is None:
        raise CheckpointError(f"{path.name} is no index: it has no weight_map")
    return _Index(path.name, raw, map_at, _named(raw, map_at, path.name), total)


def _first(members: Iterator[re.Match[bytes]]) -> Iterator[re.Match[bytes]]:
    """The first few members, which is all that there are unless somebody means harm."""
    return islice(members, MAX_TOLD)


def _total(raw: bytes, at: int, file: str) -> int | None:
    """The ``total_size`` that an index states, None where it states none or no whole number."""
    if not raw.startswith(b"{", at):
        return None
    for found in _first(_members(raw, at, file)):
        if found[1] == b'"total_size"' and found[2].isdigit() and len(found[2]) < MAX_DIGITS:
            return int(found[2])
    return None


def _text(raw: bytes, file: str) -> str:
    """A JSON string, unquoted."""
    if not raw.startswith(b'"') or len(raw) > MAX_MEMBER_BYTES:
        raise CheckpointError(f"{file}: {_shown(raw)} is no name")
    return str(_parsed(raw, file)) if b"\\" in raw else raw[1:-1].decode(errors="replace")


def _named(raw: bytes, at: int, file: str) -> Mapping[bytes, str]:
    """The files that an index names."""
    names: set[bytes] = set()
    for found in _members(raw, at, file):
        names.add(found[2])
        if len(names) > MAX_SHARDS:
            raise CheckpointError(f"{file} names more than {MAX_SHARDS} files")
    if not names:
        raise CheckpointError(f"{file} names no file")
    return {name: _text(name, file) for name in names}


def _beside(index: Path, name: str) -> Path:
    """The file of a name that an index gives, which must be beside it: no path, and no link to elsewhere.

    The hub's cache alone keeps links in ``snapshots/<revision>`` to files in ``blobs``.
    """
    if not PLAIN.fullmatch(name):
        raise CheckpointError(f"{index.name} names {name[:80]!r}, which is no safetensors file beside it")
    shard, folder = index.with_name(name), index.parent.resolve()
    if not shard.is_file():
        raise CheckpointError(f"{name}, which {index.name} names, is missing")
    homes = {folder, folder.parents[1] / "blobs"} if folder.parent.name == "snapshots" else {folder}
    if shard.resolve().parent not in homes:
        raise CheckpointError(f"{name}, which {index.name} names, is a link that leaves its folder")
    return shard


def _check_places(index: _Index, owner: Mapping[str, str]) -> None:
    """Raise CheckpointError where a tensor isn't in the file that the index says."""
    for found in _members(index.raw, index.map_at, index.file):
        file = index.names[found[2]]
        if owner.get(_text(found[1], index.file)) != file:
            raise CheckpointError(f"{index.file} says that {file} has tensor {_shown(found[1])}; it hasn't")


def _notes(index: _Index, stored: int) -> tuple[str, ...]:
    if index.total in {None, stored}:
        return ()
    return (f"{index.file} says total_size {index.total}, the headers add up to {stored}",)
