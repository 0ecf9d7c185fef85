"""Headers written by hand, byte by byte, where the real libraries would refuse to write them."""

import json
import struct
from pathlib import Path
from typing import Any

from app.checkpoints.gguf import SCALARS

STRING, ARRAY = 8, 9


def entry(begin: int, end: int, *shape: int, dtype: str = "U8") -> dict[str, Any]:
    """A tensor of a safetensors header."""
    return {"dtype": dtype, "shape": list(shape or (end - begin,)), "data_offsets": [begin, end]}


def write_safetensors(path: Path, header: Any, data_bytes: int = 0) -> Path:
    """A file with this header, as JSON or as it is, and data that is a hole in the disk."""
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(raw)) + raw)
        file.truncate(8 + len(raw) + data_bytes)
    return path


def text(value: str | bytes, order: str = "<") -> bytes:
    """A string of a GGUF file."""
    raw = value if isinstance(value, bytes) else value.encode()
    return struct.pack(f"{order}Q", len(raw)) + raw


def pair(key: str, kind: int, value: bytes) -> bytes:
    """A figure, its value spelled."""
    return text(key) + struct.pack("<I", kind) + value


def number(key: str, kind: int, value: float) -> bytes:
    """A figure that is a number."""
    return pair(key, kind, struct.pack("<" + SCALARS[kind], value))


def array(item: int, count: int, items: bytes = b"") -> bytes:
    """The value of a figure that is an array, or of an array in an array."""
    return struct.pack("<IQ", item, count) + items


def tensor(name: str | bytes, ne: tuple[int, ...], kind: int, offset: int) -> bytes:
    """A tensor's entry; ``ne`` innermost first, as the file has it."""
    return text(name) + struct.pack(f"<I{len(ne)}QIQ", len(ne), *ne, kind, offset)


def gguf(
    *pairs: bytes,
    tensors: tuple[bytes, ...] = (),
    version: int = 3,
    counts: tuple[int, int] | None = None,
) -> bytes:
    """A header; ``counts`` of tensors and pairs where it lies about them."""
    n_tensors, n_pairs = counts or (len(tensors), len(pairs))
    return b"GGUF" + struct.pack("<IQQ", version, n_tensors, n_pairs) + b"".join((*pairs, *tensors))


def write_gguf(path: Path, header: bytes, data_bytes: int = 0, alignment: int = 32) -> Path:
    """A file with this header and data that is a hole in the disk."""
    with path.open("wb") as file:
        file.write(header)
        file.truncate(-(-len(header) // alignment) * alignment + data_bytes)
    return path
