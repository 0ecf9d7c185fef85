"""Broken headers by the thousand: an error or a result, within a second, 64 MiB and the bytes that a header may have.

Two seconds in the suite. ``FUZZ_S=300 pytest tests/checkpoints/test_header_fuzz.py -o log_cli=true -o
log_cli_level=INFO`` takes five minutes, with headers at the bounds too and other mutations each time, and logs figures.
"""

import json
import logging
import os
import random
import re
import struct
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from app.checkpoints import gguf, safetensors
from app.checkpoints.gguf_architecture import architecture
from app.checkpoints.tensors import CheckpointError, Tensor
from tests.checkpoints.headers import ARRAY, STRING, array, entry, number, pair, tensor, text, write_safetensors
from tests.checkpoints.headers import gguf as gguf_header

LEAST_RUNS = 150
"""However slow the machine is."""

FUZZ_S = float(os.environ.get("FUZZ_S", "2"))
"""For all readers together."""

MAX_CPU_S = 1.0
"""Of this process: nothing here waits, and the machine may have other work."""

MAX_BYTES = 64 * 1024 * 1024
READ_BYTES = {
    "safetensors": safetensors.MAX_HEADER_BYTES,
    "safetensors.index.json": safetensors.MAX_INDEX_BYTES,
    "gguf": gguf.MAX_READ_BYTES,
}
SLACK_BYTES = 256 * 1024
"""A buffer read ahead."""

HUGE = [0, 1, 2**15, 2**16 - 1, 2**31, 2**32 - 1, 2**53 + 1, 2**60, 2**62, 2**63 - 1, 2**63, 2**64 - 1]
SIZES = [10**4, 10**7, 2**32, 2**40, 2**43]
"""Bytes that a file is stretched to, so that claims are not refused for its size alone."""

STRETCHED_SHARE = {"safetensors": 0.05, "safetensors.index.json": 0.01, "gguf": 0.4}
LARGE_SHARE = 0.002

COUNTED = Path("/proc/self/io")
log = logging.getLogger("fuzz")


@dataclass
class Seen:
    """What came of it."""

    runs: int = 0
    results: int = 0
    most_s: float = 0.0
    most_cpu_s: float = 0.0
    most_bytes: int = 0
    most_read: int = 0
    reasons: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class Seed:
    """A header, and how many bytes of data follow it: a hole in the disk."""

    header: bytes
    data_bytes: int


def safetensors_seeds(*, large: bool) -> list[Seed]:
    names = [f"model.layers.{at}.mlp.experts.{at}.down_proj.weight" for at in range(8)]
    plain = {name: entry(at * 48, at * 48 + 48, 6, 4, dtype="BF16") for at, name in enumerate(names)}
    odd = {"__metadata__": {"format": "pt", "a": '{"}'}, "é\\n": entry(0, 0, 0), "x": entry(0, 3, 6, dtype="F4")}
    headers = [plain, odd, {}]
    if large:
        headers.append({f"model.layers.{at}.w": entry(at * 8, at * 8 + 8) for at in range(safetensors.MAX_TENSORS)})
        headers.append({"__metadata__": {f"{at}": "x" for at in range(500_000)}})
    raws = [json.dumps(header, separators=(",", ":")).encode() for header in headers]
    data = [max((e["data_offsets"][1] for e in header.values() if "dtype" in e), default=0) for header in headers]
    return [Seed(struct.pack("<Q", len(raw)) + raw, size) for raw, size in zip(raws, data, strict=True)]


def index_seeds(*, large: bool) -> list[Seed]:
    """Indexes of two files that are there."""
    names = [f"m-0000{at}-of-00002.safetensors" for at in (1, 2)]
    told = {"metadata": {"total_size": 9}, "weight_map": {f"t{at}": names[at % 2] for at in range(8)}}
    seeds = [json.dumps(told, indent=2), json.dumps({"weight_map": told["weight_map"]})]
    if large:
        every = {f"model.layers.{at}.weight_scale_inv": names[0] for at in range(safetensors.MAX_INDEXED)}
        seeds.append(json.dumps({"weight_map": every}))
    return [Seed(seed.encode(), 0) for seed in seeds]


def gguf_seeds(*, large: bool) -> list[Seed]:
    figures = [
        pair("general.architecture", STRING, text("llama")),
        number("llama.block_count", 4, 2),
        number("llama.embedding_length", 4, 64),
        pair("llama.attention.head_count", ARRAY, array(5, 2, struct.pack("<2i", 4, 4))),
        number("llama.attention.sliding_window", 10, 512),
    ]
    words = pair("tokenizer.ggml.tokens", ARRAY, array(STRING, 3, text("<s>") + text("a") + text("")))
    nested = pair("nested", ARRAY, array(ARRAY, 2, array(6, 2, bytes(8)) + array(STRING, 1, text("x"))))
    kinds = [number(f"k{kind}", kind, 1) for kind in gguf.SCALARS]
    layers = tuple(tensor(f"blk.{at}.attn_k.weight", (64, 64), at * 20, at * 16_384) for at in range(2))
    state = tuple(tensor(f"blk.{at}.ssm_conv1d.weight", (4, 64), 99, at * 1_024) for at in range(2))
    seeds = [
        gguf_header(*figures, words, nested, *kinds, tensors=layers),
        gguf_header(*figures, tensors=state, version=2),
        gguf_header(number("general.alignment", 4, 64)),
    ]
    if large:
        many = tuple(tensor(f"blk.{at % 64}.t{at}", (64, 2), 24, at * 128) for at in range(gguf.MAX_TENSORS))
        strings = array(STRING, gguf.MAX_STRINGS // 2, text("word") * (gguf.MAX_STRINGS // 2))
        kept = [pair(f"a{at}", ARRAY, array(5, 90, bytes(360))) for at in range(4_000)]
        seeds += [gguf_header(tensors=many), gguf_header(pair("t", ARRAY, strings)), gguf_header(*kept)]
    return [Seed(seed, 32_800 if len(seed) < 10**5 else 128 * gguf.MAX_TENSORS) for seed in seeds]


def flip(raw: bytearray, rng: random.Random) -> None:
    for _ in range(rng.choice((1, 1, 2, 8))):
        raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)


def overwrite(raw: bytearray, rng: random.Random) -> None:
    """A number of 4 or 8 bytes somewhere in the first 4 KiB, or anywhere."""
    size = rng.choice((4, 8))
    at = rng.randrange(max(1, min(len(raw), rng.choice((64, 4_096, len(raw)))) - size))
    raw[at : at + size] = (rng.choice(HUGE) % 2 ** (8 * size)).to_bytes(size, "little")


def cut(raw: bytearray, rng: random.Random) -> None:
    del raw[rng.randrange(len(raw)) :]


def splice(raw: bytearray, rng: random.Random) -> None:
    """A piece of it once more, elsewhere."""
    begin = rng.randrange(len(raw))
    piece = raw[begin : begin + rng.choice((1, 8, 64, 4_096))]
    at = rng.randrange(len(raw))
    raw[at:at] = piece * rng.choice((1, 1, 3, 1_000))


def respell(raw: bytearray, rng: random.Random) -> None:
    """A number of its text, where it has any, becomes another word."""
    found = [m.span() for m in re.finditer(rb"\d+", raw[:4_096])]
    if found:
        begin, end = rng.choice(found)
        words = [str(rng.choice(HUGE)).encode(), b"-1", b"1.5", b"NaN", b"1e400", b"null", b"[]", b"9" * 400, b'"']
        raw[begin:end] = rng.choice(words)


MUTATIONS: Sequence[Callable[[bytearray, random.Random], None]] = (flip, overwrite, cut, splice, respell)


def mutated(seed: bytes, rng: random.Random) -> bytes:
    raw = bytearray(seed)
    for _ in range(rng.choice((0, 1, 1, 1, 2, 4))):
        if raw:
            rng.choice(MUTATIONS)(raw, rng)
    return bytes(raw)


def reframed(raw: bytes) -> bytes:
    """A safetensors header whose length fits its JSON again."""
    return struct.pack("<Q", max(len(raw) - 8, 0)) + raw[8:]


def padded(raw: bytes, reader: str) -> int:
    """Where the data starts, if the header ends there."""
    return len(raw) if reader != "gguf" else -(-len(raw) // 32) * 32


def read_safetensors(path: Path) -> int:
    tensors = safetensors.read(path)
    check(tensors, path.stat().st_size)
    return len(tensors)


def read_index(path: Path) -> int:
    for at in (1, 2):
        shard = path.with_name(f"m-0000{at}-of-00002.safetensors")
        if not shard.exists():
            write_safetensors(shard, {f"t{n}": entry(n // 2, n // 2 + 1) for n in range(8) if n % 2 == at - 1}, 4)
    return len(safetensors.read_all(path).tensors)


def read_gguf(path: Path) -> int:
    header = gguf.read(path)
    check(header.tensors, path.stat().st_size)
    try:
        made = architecture(header.metadata, header.tensors)
    except CheckpointError:
        return len(header.tensors)
    assert made.caches
    assert any(c.k_elements or c.state_elements for c in made.caches)
    return len(header.tensors)


def check(tensors: Sequence[Tensor], size: int) -> None:
    """What may be relied on."""
    assert len({t.name for t in tensors}) == len(tensors)
    assert all(t.n_bytes >= 0 and t.n_elements < 2**63 for t in tensors)
    assert sum(t.n_bytes for t in tensors) <= size


def bytes_read() -> int:
    """By this process, from the disk or its cache; 0 where nobody counts."""
    if not COUNTED.exists():
        return 0
    return int(COUNTED.read_text().split()[1])


def run(read: Callable[[Path], int], path: Path, seen: Seen) -> None:
    """Once for the time, once for what it allocates and reads."""
    seen.runs += 1
    started, started_cpu = time.perf_counter(), time.process_time()
    try:
        read(path)
        seen.results += 1
    except CheckpointError as error:
        seen.reasons[re.sub(r"[\d'\"].*", "", error.detail.removeprefix(path.name))[:60]] += 1
        assert len(error.detail) < 500
    seen.most_s = max(seen.most_s, time.perf_counter() - started)
    seen.most_cpu_s = max(seen.most_cpu_s, time.process_time() - started_cpu)
    before = bytes_read()
    tracemalloc.start()
    try:
        read(path)
    except CheckpointError:
        pass
    finally:
        seen.most_bytes = max(seen.most_bytes, tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    seen.most_read = max(seen.most_read, bytes_read() - before)


READERS = {
    "safetensors": (safetensors_seeds, read_safetensors),
    "safetensors.index.json": (index_seeds, read_index),
    "gguf": (gguf_seeds, read_gguf),
}


@pytest.mark.parametrize("reader", READERS)
def test_broken_headers_end_in_an_error_or_a_result_and_soon(reader: str, tmp_path: Path) -> None:
    make, read = READERS[reader]
    long = "FUZZ_S" in os.environ
    drawn = time.time_ns() if long else 4
    rng = random.Random(drawn)  # noqa: S311  # repeatable by the seed, which a failure tells
    small = make(large=False)
    large = make(large=True)[len(small) :] if long else small
    path, seen = tmp_path / f"m.{reader}", Seen()
    until = time.monotonic() + FUZZ_S / len(READERS)
    whole = iter([*small, *large])  # as they are, first
    while time.monotonic() < until or seen.runs < LEAST_RUNS:
        untouched = next(whole, None)
        seed = untouched or rng.choice(large if rng.random() < LARGE_SHARE else small)
        raw = seed.header if untouched else mutated(seed.header, rng)
        if not untouched and reader == "safetensors" and rng.random() < 0.9:
            raw = reframed(raw)
        stretched = not untouched and rng.random() < STRETCHED_SHARE[reader]
        with path.open("wb") as file:
            file.write(raw)
            file.truncate(max(len(raw), rng.choice(SIZES)) if stretched else padded(raw, reader) + seed.data_bytes)
        run(read, path, seen)
        said = f"seed {drawn}, run {seen.runs}: {seen}"
        assert seen.most_cpu_s < MAX_CPU_S, said
        assert seen.most_bytes < MAX_BYTES, said
        assert seen.most_read < READ_BYTES[reader] + SLACK_BYTES, said
    log.info("%s: %s", reader, seen)
    assert seen.results > 0
    assert len(seen.reasons) > 5
