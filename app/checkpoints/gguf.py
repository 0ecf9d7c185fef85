"""Headers of GGUF files (versions 2 and 3, either byte order, whole or split): figures and tensors. No weight is read.

A file is a magic, numbers of tensors and of pairs, the pairs, the tensors' names, shapes, types and offsets, and data
from the next multiple of its alignment (ggml's docs/gguf.md; what ggml refuses, src/gguf.cpp, is refused here too).

Everything is read through a window that moves on; nothing is allocated by a size that the file merely claims. Long
arrays, the tokenizer's words above all, are walked over.
"""

import os
import re
import stat
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

from app.checkpoints.tensors import CheckpointError, Tensor
from app.placement.units import INT_MAX

MAGIC = b"GGUF"
VERSIONS = (2, 3)

WINDOW_BYTES = 64 * 1024
MAX_READ_BYTES = 128 * 1024 * 1024
"""Of one header. A tokenizer of 256,000 words has 10 MB."""

MAX_PAIRS = 4_096
MAX_TENSORS = 16_384
"""In all parts: 0.2 s. Experts are one tensor a projection, so that DeepSeek-V3 has 1,025."""

MAX_RANK = 4
MAX_NAME_BYTES = 1_024
MAX_TEXT_BYTES = 4_096
"""Longer texts are passed over: chat templates and the like."""

MAX_ARRAY = 10_000
"""Longer arrays are passed over; figures by layer are shorter."""

MAX_STRINGS = 1_500_000
"""Strings that may be walked over: 0.35 s. Gemma 3's tokenizer has 776,000."""

MAX_NESTED = 10_000
"""Arrays within arrays, in all."""

MAX_DEPTH = 4
MAX_KEPT_BYTES = 16 * 1024 * 1024
NUMBER_BYTES = 40
"""What a number in a list takes here."""

ALIGNMENT = 32
"""Where a file names none."""

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
    """A model's figures by their keys, and its tensors in the order of the header.

    Numbers, truth values, texts, and lists of numbers or truth values. What was passed over isn't there: texts beyond
    ``MAX_TEXT_BYTES``, lists of texts, longer or nested lists.
    """

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
    """The header of a model; of a split one all parts' tensors and the first part's figures, whichever part is given.

    Bytes are those of the types' blocks, without padding; a type that isn't known takes what lies between it and the
    next tensor, padding included. O(header), for each part within a second and 64 MiB whatever it says. Raises
    CheckpointError where a part is missing or a header is broken or beyond the bounds, and OSError.
    """
    parts = _parts_of(path)
    metadata: Mapping[str, Any] = {}
    tensors: list[Tensor] = []
    for at, part in enumerate(parts):
        header = _read(part)
        metadata = header.metadata if at == 0 else metadata
        if header.metadata.get("split.no", at) != at:
            raise CheckpointError(f"{part.name} says that it is part {header.metadata['split.no']}, counted from 0")
        tensors.extend(header.tensors)
        if len(tensors) > MAX_TENSORS:
            raise CheckpointError(f"{path.name} has more than {MAX_TENSORS} tensors in its parts")
    _check_distinct(tensors, path.name)
    _check_complete(metadata, len(parts), len(tensors), path.name)
    return Gguf(metadata, tuple(tensors))


def _parts_of(path: Path) -> list[Path]:
    part = PART.search(path.name)
    if part is None:
        return [path]
    if not 1 <= int(part[1]) <= int(part[2]) <= MAX_PARTS:
        raise CheckpointError(f"{path.name} can't be one of so many parts")
    stem = path.name[: part.start()]
    parts = [path.with_name(f"{stem}-{at:05}-of-{part[2]}.gguf") for at in range(1, int(part[2]) + 1)]
    for other in parts:
        if not other.is_file():
            raise CheckpointError(f"{other.name} is missing")
    return parts


def _check_distinct(tensors: Iterable[Tensor], file: str) -> None:
    seen: set[str] = set()
    for tensor in tensors:
        if tensor.name in seen:
            raise CheckpointError(f"{file}: tensor {tensor.name[:80]!r} stands there twice")
        seen.add(tensor.name)


def _check_complete(metadata: Mapping[str, Any], n_parts: int, n_tensors: int, file: str) -> None:
    """Raise CheckpointError where a split model says that it has more or fewer parts or tensors."""
    told_parts = metadata.get("split.count") or 1
    if told_parts != n_parts:
        raise CheckpointError(f"{file} says that it has {told_parts} parts; by the names of its files it has {n_parts}")
    told = metadata.get("split.tensors.count", n_tensors)
    if n_parts > 1 and told != n_tensors:
        raise CheckpointError(f"{file} says that its parts have {told} tensors; they have {n_tensors}")


def _read(path: Path) -> Gguf:
    if not stat.S_ISREG(path.stat().st_mode):
        raise CheckpointError(f"{path.name} is no file")
    with path.open("rb", buffering=0) as file:
        source = _Source(file, path.name)
        n_tensors, n_pairs = source.start()
        metadata = _pairs(source, n_pairs)
        entries = [_entry(source) for _ in range(n_tensors)]
    alignment = metadata.get("general.alignment", ALIGNMENT)
    if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1):
        raise source.broken("its alignment is no power of two")
    data_bytes = max(0, source.size - -(-source.position // alignment) * alignment)
    return Gguf(metadata, _placed(entries, alignment, data_bytes, path.name))


def _pairs(source: "_Source", count: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    seen: set[str] = set()
    for _ in range(count):
        key = source.name()
        if key in seen:
            raise source.broken(f"{key[:80]!r} stands there twice")
        seen.add(key)
        value = _value(source, source.number("I"), 0)
        if value is not None:
            found[key] = value
    return found


def _value(source: "_Source", kind: int, depth: int) -> Any:
    """A value, None where it is passed over."""
    if kind in SCALARS:
        return source.number(SCALARS[kind])
    if kind == STRING:
        return source.text()
    if kind != ARRAY or depth == MAX_DEPTH:
        raise source.broken("it has a value of an unknown kind" if kind != ARRAY else "it has arrays nested too deep")
    item, count = source.number("I"), source.number("Q")
    if item in SCALARS:
        return source.numbers(SCALARS[item], count, keep=depth == 0)
    if item == STRING:
        source.skip_strings(count)
        return None
    source.nest(count)
    for _ in range(count):
        _value(source, item, depth + 1)
    return None


def _entry(source: "_Source") -> _Entry:
    name = source.name()
    rank = source.number("I")
    if rank > MAX_RANK:
        raise source.broken(f"tensor {name[:80]!r} has {rank} dimensions")
    *shape, kind, offset = source.record(f"{rank}QIQ")
    return _Entry(name, tuple(shape[::-1]), kind, offset)


def _placed(entries: list[_Entry], alignment: int, data_bytes: int, file: str) -> tuple[Tensor, ...]:
    """The tensors with their bytes, which must lie aligned, one behind the other, and within the data."""
    sizes = [_bytes_of(entry, file) for entry in entries]
    ends = [
        (e.offset, INT_MAX if size is None else size, at)
        for at, (e, size) in enumerate(zip(entries, sizes, strict=True))
    ]
    following = data_bytes
    for offset, size, at in sorted(ends, reverse=True):
        taken = following - offset if sizes[at] is None else size
        if offset + taken > following or taken < 0 or (sizes[at] is None and taken == 0):
            raise CheckpointError(
                f"{file}: tensor {entries[at].name[:80]!r} lies over another or beyond the file's end: {max(taken, 0)} "
                f"bytes at {offset} of the data, where {max(following - offset, 0)} are"
            )
        if offset % alignment:
            raise CheckpointError(f"{file}: tensor {entries[at].name[:80]!r} isn't aligned to {alignment} bytes")
        sizes[at] = taken
        following = offset
    return tuple(Tensor(e.name, e.shape, _type_name(e.kind), size or 0) for e, size in zip(entries, sizes, strict=True))


def _type_name(kind: int) -> str:
    return BLOCKS[kind][0] if kind in BLOCKS else f"type_{kind}"


def _bytes_of(entry: _Entry, file: str) -> int | None:
    """Bytes by the type's blocks, None where it isn't known. Raises CheckpointError."""
    count = prod(entry.shape)
    if count > INT_MAX:
        raise CheckpointError(f"{file}: tensor {entry.name[:80]!r} would have more than 2^63-1 elements")
    if entry.kind not in BLOCKS:
        return None
    _, block, size = BLOCKS[entry.kind]
    row = entry.shape[-1] if entry.shape else 1
    if row % block:
        raise CheckpointError(f"{file}: tensor {entry.name[:80]!r} has rows of {row}, no whole blocks of {block}")
    return count // block * size


class _Source:
    """A file's header through a window that moves on. Every method raises CheckpointError."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file = file
        self._name = name
        self.size = os.fstat(file.fileno()).st_size
        self._window = b""
        self._at = 0
        self._start = 0
        self._order = "<"
        self._structs: dict[str, struct.Struct] = {}
        self._read = self._kept = self._strings = self._nested = 0

    @property
    def position(self) -> int:
        """How far the header has been walked."""
        return self._start + self._at

    def broken(self, why: str) -> CheckpointError:
        """The error of a header that isn't what it says."""
        return CheckpointError(f"{self._name} is broken: {why}")

    def start(self) -> tuple[int, int]:
        """Numbers of tensors and of pairs."""
        if self.size < len(MAGIC) or self._take(len(MAGIC)) != MAGIC:
            raise CheckpointError(f"{self._name} is no GGUF file")
        version = self._take(4)
        self._order = next((o for o in "<>" if struct.unpack(f"{o}I", version)[0] in VERSIONS), "")
        if not self._order:
            raise CheckpointError(f"{self._name} is GGUF of a version other than {' and '.join(map(str, VERSIONS))}")
        n_tensors, n_pairs = self.record("QQ")
        self._must_hold(n_tensors * 24 + n_pairs * 13)
        if n_tensors > MAX_TENSORS or n_pairs > MAX_PAIRS:
            raise self.broken(f"more than {MAX_TENSORS} tensors or {MAX_PAIRS} figures")
        return n_tensors, n_pairs

    def number(self, kind: str) -> Any:
        """One number."""
        return self.record(kind)[0]

    def record(self, kinds: str) -> tuple[Any, ...]:
        """Some numbers, one behind the other."""
        layout = self._structs.get(kinds)
        if layout is None:
            layout = self._structs[kinds] = struct.Struct(self._order + kinds)
        return layout.unpack(self._take(layout.size))

    def numbers(self, kind: str, count: int, *, keep: bool) -> list[Any] | None:
        """An array of numbers, None where it is too long or not to be kept."""
        size = count * struct.calcsize("=" + kind)
        self._must_hold(size)
        if count > MAX_ARRAY or not keep:
            self._skip(size)
            return None
        self._keep(count * NUMBER_BYTES)
        return list(struct.unpack(f"{self._order}{count}{kind}", self._take(size)))

    def name(self) -> str:
        """A string that must be there, short, and UTF-8."""
        length = self.number("Q")
        self._must_hold(length)
        if not 0 < length <= MAX_NAME_BYTES:
            raise self.broken(f"it has a name of {length} bytes")
        self._keep(length)
        try:
            return self._take(length).decode()
        except UnicodeDecodeError:
            raise self.broken("it has a name that isn't UTF-8") from None

    def text(self) -> str | None:
        """A string, None where it is too long to be kept."""
        length = self.number("Q")
        self._must_hold(length)
        if length > MAX_TEXT_BYTES:
            self._skip(length)
            return None
        self._keep(length)
        return self._take(length).decode(errors="replace")

    def nest(self, count: int) -> None:
        """Let an array of so many arrays begin."""
        self._must_hold(count * 12)
        self._nested += count
        if self._nested > MAX_NESTED:
            raise self.broken(f"it has more than {MAX_NESTED} arrays within arrays")

    def skip_strings(self, count: int) -> None:
        """Pass over an array of strings."""
        self._must_hold(count * 8)
        self._strings += count
        if self._strings > MAX_STRINGS:
            raise self.broken(f"it has more than {MAX_STRINGS} strings")
        unpack = struct.Struct(self._order + "Q").unpack_from
        while count:
            self._fill(8)
            window, at, last = self._window, self._at, len(self._window) - 8
            while count and at <= last:
                at += 8 + unpack(window, at)[0]
                count -= 1
            self._skip(at - self._at)

    def _must_hold(self, n_bytes: int) -> None:
        if n_bytes > self.size - self.position:
            raise self.broken(f"it claims {n_bytes} bytes more at {self.position} and has {self.size}")

    def _keep(self, n_bytes: int) -> None:
        """Count what stays in memory, with what an object takes beside its bytes."""
        self._kept += n_bytes + 200
        if self._kept > MAX_KEPT_BYTES:
            raise self.broken(f"it has more than {MAX_KEPT_BYTES} bytes of names and figures")

    def _take(self, n_bytes: int) -> bytes:
        self._fill(n_bytes)
        taken = self._window[self._at : self._at + n_bytes]
        self._at += n_bytes
        return taken

    def _fill(self, n_bytes: int) -> None:
        """Have at least so many bytes in the window, which are never more than a kept array's."""
        if self._at + n_bytes <= len(self._window):
            return
        self._must_hold(n_bytes)
        self._start, self._window, self._at = self.position, self._window[self._at :], 0
        while len(self._window) < n_bytes:
            more = self._file.read(max(WINDOW_BYTES, n_bytes - len(self._window)))
            self._read += len(more)
            if not more or self._read > MAX_READ_BYTES:
                raise self.broken(f"its header ends within a value or is longer than {MAX_READ_BYTES} bytes")
            self._window += more

    def _skip(self, n_bytes: int) -> None:
        """Pass over bytes, by a jump where they reach beyond the window."""
        self._must_hold(n_bytes)
        self._at += n_bytes
        if self._at > len(self._window):
            self._start, self._window, self._at = self.position, b"", 0
            self._file.seek(self._start)
