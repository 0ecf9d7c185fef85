"""Headers of GGUF files (versions 2 and 3, either byte order, whole or split): figures and tensors. No weight is read.

Everything is read through a window that moves on; nothing is allocated by a size that the file merely claims. Long
arrays, the tokenizer's words above all, are walked over.
"""

import os
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

from app.checkpoints.tensors import CheckpointError, Tensor
from app.placement.units import INT_MAX

MAGIC = b"GGUF"
VERSIONS = (2, 3)
WINDOW_BYTES = 1024 * 1024

MAX_PAIRS = 20_000
MAX_TENSORS = 65_536
MAX_RANK = 8
MAX_NAME_BYTES = 1_024
MAX_TEXT_BYTES = 4_096
"""Longer texts are passed over: chat templates and the like."""

MAX_ARRAY = 10_000
"""Longer arrays are passed over; figures by layer are shorter."""

MAX_STRINGS = 4_000_000
"""Strings that may be walked over: about a second. A tokenizer has half a million."""

MAX_DEPTH = 4
MAX_KEPT_BYTES = 8 * 1024 * 1024

STRING, ARRAY = 8, 9
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""Kinds of values by their numbers, as struct spells them."""

BLOCKS = {
    0: ("f32", 1, 4),
    1: ("f16", 1, 2),
    2: ("q4_0", 32, 18),
    3: ("q4_1", 32, 20),
    6: ("q5_0", 32, 22),
    7: ("q5_1", 32, 24),
    8: ("q8_0", 32, 34),
    9: ("q8_1", 32, 40),
    10: ("q2_k", 256, 84),
    11: ("q3_k", 256, 110),
    12: ("q4_k", 256, 144),
    13: ("q5_k", 256, 176),
    14: ("q6_k", 256, 210),
    15: ("q8_k", 256, 292),
    16: ("iq2_xxs", 256, 66),
    17: ("iq2_xs", 256, 74),
    18: ("iq3_xxs", 256, 98),
    19: ("iq1_s", 256, 50),
    20: ("iq4_nl", 32, 18),
    21: ("iq3_s", 256, 110),
    22: ("iq2_s", 256, 82),
    23: ("iq4_xs", 256, 136),
    24: ("i8", 1, 1),
    25: ("i16", 1, 2),
    26: ("i32", 1, 4),
    27: ("i64", 1, 8),
    28: ("f64", 1, 8),
    29: ("iq1_m", 256, 56),
    30: ("bf16", 1, 2),
    34: ("tq1_0", 256, 54),
    35: ("tq2_0", 256, 66),
    39: ("mxfp4", 32, 17),
    40: ("nvfp4", 64, 36),
    41: ("q1_0", 128, 18),
}
"""Types of tensors by their numbers: name, elements of a block, bytes of a block (ggml)."""

PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")
MAX_PARTS = 1_000


@dataclass(frozen=True, slots=True)
class Gguf:
    """A model's figures by their keys, and its tensors. Values that were passed over are not there."""

    metadata: Mapping[str, Any]
    tensors: tuple[Tensor, ...]


@dataclass(frozen=True, slots=True)
class _Entry:
    """A tensor as its header has it; ``offset`` within the data."""

    name: str
    shape: tuple[int, ...]
    kind: int
    offset: int


def read(path: Path) -> Gguf:
    """The header of a model; of a split one the headers of all parts, whichever is given.

    O(header). Raises CheckpointError where a part is missing or a header is broken, and OSError.
    """
    parts = _parts_of(path)
    read_parts = [_read(part) for part in parts]
    metadata = read_parts[0].metadata
    tensors = tuple(tensor for part in read_parts for tensor in part.tensors)
    if len({tensor.name for tensor in tensors}) < len(tensors):
        raise CheckpointError(f"{path.name}: a tensor stands there twice")
    told = metadata.get("split.count"), metadata.get("split.tensors.count")
    if told[0] not in (None, 0, len(parts)) or (len(parts) > 1 and told[1] not in (None, len(tensors))):
        raise CheckpointError(
            f"{path.name} says that it has {told[0]} parts and {told[1]} tensors; "
            f"there are {len(parts)} and {len(tensors)}"
        )
    return Gguf(metadata, tensors)


def _parts_of(path: Path) -> list[Path]:
    part = PART.search(path.name)
    if part is None:
        return [path]
    count = int(part[2])
    if not 1 <= count <= MAX_PARTS:
        raise CheckpointError(f"{path.name} can't be one of {count} parts")
    stem = path.name[: part.start()]
    parts = [path.with_name(f"{stem}-{at:05}-of-{part[2]}.gguf") for at in range(1, count + 1)]
    for other in parts:
        if not other.is_file():
            raise CheckpointError(f"{other.name} is missing")
    return parts


def _read(path: Path) -> Gguf:
    with path.open("rb") as file:
        source = _Source(file, path.name)
        n_tensors, n_pairs = source.start()
        metadata = _pairs(source, n_pairs)
        entries = [_entry(source) for _ in range(n_tensors)]
        alignment = metadata.get("general.alignment", 32)
        if isinstance(alignment, bool) or not isinstance(alignment, int) or not 1 <= alignment <= 2**20:
            raise source.broken("its alignment makes no sense")
        data_bytes = max(0, source.size - -(-source.position // alignment) * alignment)
    return Gguf(metadata, _placed(entries, data_bytes, path.name))


def _pairs(source: "_Source", count: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for _ in range(count):
        key = source.text(MAX_NAME_BYTES)
        value = _value(source, source.number("I"), 0)
        if value is not None and key is not None:
            found[key] = value
    return found


def _value(source: "_Source", kind: int, depth: int) -> Any:
    """A value, None where it is too long to be kept."""
    if kind in SCALARS:
        return source.number(SCALARS[kind])
    if kind == STRING:
        return source.text(MAX_TEXT_BYTES, required=False)
    if kind != ARRAY or depth == MAX_DEPTH:
        raise source.broken(f"there is no kind of value {kind}, or it is nested too deep")
    item, count = source.number("I"), source.number("Q")
    if item in SCALARS:
        return source.numbers(SCALARS[item], count)
    if item == STRING:
        source.skip_strings(count)
        return None
    source.must_hold(count * 12)
    if count > MAX_ARRAY:
        raise source.broken("it has too long an array of arrays")
    for _ in range(count):
        _value(source, item, depth + 1)
    return None


def _entry(source: "_Source") -> _Entry:
    name = source.text(MAX_NAME_BYTES) or ""
    rank = source.number("I")
    if rank > MAX_RANK:
        raise source.broken(f"tensor {name[:80]!r} has {rank} dimensions")
    shape = tuple(source.number("Q") for _ in range(rank))
    return _Entry(name, shape[::-1], source.number("I"), source.number("Q"))


def _placed(entries: list[_Entry], data_bytes: int, file: str) -> tuple[Tensor, ...]:
    """The tensors with their bytes, which must lie one behind the other within the data.

    A type that isn't known takes what lies between it and the next, padding included.
    """
    ends: dict[str, int] = {}
    following = data_bytes
    for entry in sorted(entries, key=lambda e: e.offset, reverse=True):
        size = _bytes_of(entry)
        size = following - entry.offset if size is None else size
        if size < 0 or entry.offset + size > following:
            raise CheckpointError(f"{file}: tensor {entry.name[:80]!r} lies outside of the data or over another")
        ends[entry.name] = size
        following = entry.offset
    if len(ends) < len(entries):
        raise CheckpointError(f"{file}: a tensor stands there twice")
    return tuple(Tensor(e.name, e.shape, _type_name(e.kind), ends[e.name]) for e in entries)


def _type_name(kind: int) -> str:
    return BLOCKS[kind][0] if kind in BLOCKS else f"type_{kind}"


def _bytes_of(entry: _Entry) -> int | None:
    """Bytes by the type's blocks, None where it isn't known. Raises CheckpointError."""
    count = prod(entry.shape)
    if count > INT_MAX:
        raise CheckpointError(f"tensor {entry.name[:80]!r} would be beyond 2^63-1 elements")
    if entry.kind not in BLOCKS:
        return None
    _, block, size = BLOCKS[entry.kind]
    if entry.shape and entry.shape[-1] % block:
        raise CheckpointError(f"tensor {entry.name[:80]!r} has rows that are no whole blocks of {block}")
    return -(-count // block) * size


class _Source:
    """A file's header through a window that moves on."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file = file
        self._name = name
        self.size = os.fstat(file.fileno()).st_size
        self._window = b""
        self._at = 0
        self._start = 0
        self._order = "<"
        self._kept = 0
        self._strings = 0

    @property
    def position(self) -> int:
        """How far the file has been read."""
        return self._start + self._at

    def broken(self, why: str) -> CheckpointError:
        """The error of a header that isn't what it says."""
        return CheckpointError(f"{self._name} is broken: {why}")

    def start(self) -> tuple[int, int]:
        """Numbers of tensors and of pairs."""
        if self._take(4) != MAGIC:
            raise CheckpointError(f"{self._name} is no GGUF file")
        version = self.number("I")
        if version not in VERSIONS:
            version, self._order = int.from_bytes(version.to_bytes(4, "little"), "big"), ">"
        if version not in VERSIONS:
            raise CheckpointError(f"{self._name} is GGUF of a version other than {' and '.join(map(str, VERSIONS))}")
        n_tensors, n_pairs = self.number("Q"), self.number("Q")
        self.must_hold(n_tensors * 24 + n_pairs * 13)
        if n_tensors > MAX_TENSORS or n_pairs > MAX_PAIRS:
            raise self.broken(f"more than {MAX_TENSORS} tensors or {MAX_PAIRS} figures")
        return n_tensors, n_pairs

    def must_hold(self, n_bytes: int) -> None:
        """Raise CheckpointError where the rest of the file is shorter."""
        if n_bytes > self.size - self.position:
            raise self.broken("it claims more than the file holds")

    def number(self, kind: str) -> Any:
        """One number."""
        return struct.unpack(self._order + kind, self._take(struct.calcsize("=" + kind)))[0]

    def numbers(self, kind: str, count: int) -> list[Any] | None:
        """An array of numbers, None where it is too long to be kept."""
        size = count * struct.calcsize("=" + kind)
        self.must_hold(size)
        if count > MAX_ARRAY:
            self._skip(size)
            return None
        self._keep(size * 4)
        return list(struct.unpack(f"{self._order}{count}{kind}", self._take(size)))

    def text(self, most: int, *, required: bool = True) -> str | None:
        """A string, None where it is longer than ``most`` and not required."""
        length = self.number("Q")
        self.must_hold(length)
        if length > most and required:
            raise self.broken(f"a name of {length} bytes")
        if length > most:
            self._skip(length)
            return None
        self._keep(length + 200)
        return self._take(length).decode(errors="replace")

    def skip_strings(self, count: int) -> None:
        """Pass over an array of strings."""
        self.must_hold(count * 8)
        self._strings += count
        if self._strings > MAX_STRINGS:
            raise self.broken(f"more than {MAX_STRINGS} strings")
        unpack = struct.Struct(self._order + "Q").unpack_from
        while count:
            self._fill(8)
            window, at, last = self._window, self._at, len(self._window) - 8
            while count and at <= last:
                at += 8 + unpack(window, at)[0]
                count -= 1
            beyond = at - len(window)
            self._at = min(at, len(window))
            if beyond > 0:
                self.must_hold(beyond)
                self._skip(beyond)

    def _keep(self, n_bytes: int) -> None:
        self._kept += n_bytes
        if self._kept > MAX_KEPT_BYTES:
            raise self.broken(f"more than {MAX_KEPT_BYTES} bytes of names and figures")

    def _take(self, n_bytes: int) -> bytes:
        self._fill(n_bytes)
        taken = self._window[self._at : self._at + n_bytes]
        self._at += n_bytes
        return taken

    def _fill(self, n_bytes: int) -> None:
        """Have at least so many bytes in the window."""
        if self._at + n_bytes <= len(self._window):
            return
        self._start, self._window = self.position, self._window[self._at :]
        self._at = 0
        self._window += self._file.read(max(WINDOW_BYTES, n_bytes))
        if len(self._window) < n_bytes:
            raise self.broken("it ends within its header")

    def _skip(self, n_bytes: int) -> None:
        self._at += n_bytes
        if self._at > len(self._window):
            self._start, self._window, self._at = self.position, b"", 0
            self._file.seek(self._start)
