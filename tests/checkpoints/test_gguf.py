import struct
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFEndian, GGUFReader, GGUFValueType, GGUFWriter
from gguf.constants import GGML_QUANT_SIZES
from hypothesis import given
from hypothesis import strategies as st

from app.checkpoints.gguf import (
    BLOCKS,
    MAX_ARRAY,
    MAX_KEPT_BYTES,
    MAX_PAIRS,
    MAX_READ_BYTES,
    MAX_STRINGS,
    MAX_TENSORS,
    MAX_TEXT_BYTES,
    Gguf,
    read,
)
from app.checkpoints.tensors import CheckpointError, Tensor
from tests.checkpoints.headers import ARRAY, STRING, array, gguf, number, pair, tensor, text, write_gguf

U8, U16, U32, F32, U64 = 0, 2, 4, 6, 10


def writer(path: Path, **options: Any) -> GGUFWriter:
    return GGUFWriter(path, "llama", **options)


def finish(made: GGUFWriter) -> None:
    made.write_header_to_file()
    made.write_kv_data_to_file()
    made.write_tensors_to_file()
    made.close()


def zeros(made: GGUFWriter, name: str, kind: GGMLQuantizationType, *shape: int) -> int:
    """Have the library add a tensor of a type; its bytes."""
    block, size = GGML_QUANT_SIZES[kind]
    data = np.zeros((*shape[:-1], shape[-1] // block * size), np.uint8)
    made.add_tensor(name, data, raw_dtype=kind)
    return data.nbytes


def refusal(path: Path) -> str:
    """What is said of a file that isn't read."""
    with pytest.raises(CheckpointError) as refused:
        read(path)
    return refused.value.detail


def test_each_type_is_known_by_the_librarys_number_name_and_block() -> None:
    told = {int(kind): (kind.name.lower(), *sizes) for kind, sizes in GGML_QUANT_SIZES.items()}
    assert told == BLOCKS


def test_each_type_has_the_bytes_that_the_library_wrote(tmp_path: Path) -> None:
    made = writer(tmp_path / "m.gguf")
    sizes = {kind.name.lower(): zeros(made, f"blk.0.{kind.name}", kind, 3, 512) for kind in GGML_QUANT_SIZES}
    finish(made)
    assert {t.dtype: t.n_bytes for t in read(tmp_path / "m.gguf").tensors} == sizes
    told = [(t.name, tuple(map(int, t.shape))[::-1], t.n_bytes) for t in GGUFReader(tmp_path / "m.gguf").tensors]
    assert [(t.name, t.shape, t.n_bytes) for t in read(tmp_path / "m.gguf").tensors] == told


FIGURES: dict[str, tuple[GGUFValueType, Any]] = {
    "u8": (GGUFValueType.UINT8, 255),
    "i8": (GGUFValueType.INT8, -128),
    "u16": (GGUFValueType.UINT16, 65_535),
    "i16": (GGUFValueType.INT16, -3),
    "u32": (GGUFValueType.UINT32, 2**32 - 1),
    "i32": (GGUFValueType.INT32, -(2**31)),
    "u64": (GGUFValueType.UINT64, 2**64 - 1),
    "i64": (GGUFValueType.INT64, -(2**63)),
    "f32": (GGUFValueType.FLOAT32, 0.5),
    "f64": (GGUFValueType.FLOAT64, 1e300),
    "bool": (GGUFValueType.BOOL, True),
    "text": (GGUFValueType.STRING, "Qwen ü"),
    "ints": (GGUFValueType.ARRAY, [8, 0, 8]),
    "floats": (GGUFValueType.ARRAY, [0.5, 0.25]),
    "bools": (GGUFValueType.ARRAY, [True, False]),
}


@pytest.mark.parametrize("endianess", [GGUFEndian.LITTLE, GGUFEndian.BIG])
def test_figures_of_every_kind_are_read_in_either_byte_order(tmp_path: Path, endianess: GGUFEndian) -> None:
    made = writer(tmp_path / "m.gguf", endianess=endianess)
    for key, (kind, value) in FIGURES.items():
        made.add_key_value(key, value, kind)
    made.add_array("tokenizer.ggml.tokens", ["<s>", "a", ""])
    made.add_array("tokenizer.ggml.scores", [0.5] * (MAX_ARRAY + 1))
    made.add_string("tokenizer.chat_template", "x" * (MAX_TEXT_BYTES + 1))
    made.add_uint32("last", 7)
    zeros(made, "token_embd.weight", GGMLQuantizationType.Q4_0, 3, 64)
    finish(made)
    header = read(tmp_path / "m.gguf")
    assert header.metadata == {
        "general.architecture": "llama",
        **{key: value for key, (_, value) in FIGURES.items()},
        "last": 7,
    }
    assert header.tensors == (Tensor("token_embd.weight", (3, 64), "q4_0", 108),)


def test_version_2_is_read_like_3_and_others_are_not(tmp_path: Path) -> None:
    for version in (2, 3):
        path = write_gguf(tmp_path / "m.gguf", gguf(number("a", U8, 1), version=version))
        assert read(path) == Gguf({"a": 1}, ())
    for version in (0, 1, 4, 2**24):
        path = write_gguf(tmp_path / "m.gguf", gguf(version=version))
        assert "of a version other than 2 and 3" in refusal(path)


def test_arrays_in_arrays_are_passed_over(tmp_path: Path) -> None:
    inner = array(U16, 2, bytes(4)) + array(STRING, 2, text("a") + text("b")) + array(ARRAY, 1, array(U8, 0))
    nested = pair("nested", ARRAY, struct.pack("<IQ", ARRAY, 3) + inner)
    path = write_gguf(tmp_path / "m.gguf", gguf(nested, number("after", U8, 3)))
    assert read(path).metadata == {"after": 3}


def test_a_type_that_nobody_knows_takes_what_lies_between(tmp_path: Path) -> None:
    """Of 66 bytes of data 32 are the first's, 32 the second's with its padding, and 2 the last's."""
    entries = (
        tensor("a", (8,), 137, 0),
        tensor("b", (5,), U8 + 24, 32),
        tensor("c", (2, 3), 200, 64),
    )
    path = write_gguf(tmp_path / "m.gguf", gguf(tensors=entries), 66)
    assert [(t.name, t.dtype, t.n_bytes) for t in read(path).tensors] == [
        ("a", "type_137", 32),
        ("b", "i8", 5),
        ("c", "type_200", 2),
    ]


def test_the_alignment_is_the_files_own(tmp_path: Path) -> None:
    header = gguf(number("general.alignment", U32, 8), tensors=(tensor("a", (1,), 24, 0), tensor("b", (1,), 24, 8)))
    assert len(read(write_gguf(tmp_path / "m.gguf", header, 9, alignment=8)).tensors) == 2
    for wrong in (0, 24, 2**31 + 1):
        path = write_gguf(tmp_path / "m.gguf", gguf(number("general.alignment", U32, wrong)))
        assert "no power of two" in refusal(path)


def split(folder: Path, *, small_first: bool = False) -> list[Path]:
    """A model of 5 tensors in files of at most 2."""
    made = writer(folder / "m.gguf", split_max_tensors=2, small_first_shard=small_first)
    made.add_block_count(5)
    for at in range(5):
        zeros(made, f"blk.{at}.attn_k.weight", GGMLQuantizationType.Q8_0, 1, 32)
    finish(made)
    return sorted(folder.glob("*.gguf"))


@pytest.mark.parametrize("small_first", [False, True])
def test_a_split_model_is_read_by_any_of_its_parts(tmp_path: Path, *, small_first: bool) -> None:
    parts = split(tmp_path, small_first=small_first)
    assert len(parts) == 3 + small_first
    for part in parts:
        header = read(part)
        assert [t.name for t in header.tensors] == [f"blk.{at}.attn_k.weight" for at in range(5)]
        assert header.metadata["llama.block_count"] == 5


def test_a_split_model_names_the_part_that_is_missing(tmp_path: Path) -> None:
    parts = split(tmp_path)
    parts[1].unlink()
    assert refusal(parts[2]) == "m-00002-of-00003.gguf is missing"


def test_a_split_model_is_what_it_says(tmp_path: Path) -> None:
    parts = split(tmp_path)
    second = parts[1].read_bytes()
    parts[1].write_bytes(parts[0].read_bytes())
    assert refusal(parts[0]) == "m-00002-of-00003.gguf says that it is part 0, counted from 0"
    parts[1].write_bytes(second.replace(b"blk.2", b"blk.0"))
    assert refusal(parts[0]) == "m-00001-of-00003.gguf: tensor 'blk.0.attn_k.weight' stands there twice"
    parts[1].write_bytes(second)
    count = text("split.tensors.count") + struct.pack("<Ii", 5, 5)
    parts[0].write_bytes(parts[0].read_bytes().replace(count, count[:-4] + struct.pack("<i", 6)))
    assert refusal(parts[0]) == "m-00001-of-00003.gguf says that its parts have 6 tensors; they have 5"


def test_a_part_under_another_name_is_not_taken_for_the_whole(tmp_path: Path) -> None:
    part = split(tmp_path)[0].rename(tmp_path / "renamed.gguf")
    assert refusal(part) == "renamed.gguf says that it has 3 parts; by the names of its files it has 1"


@pytest.mark.parametrize("name", ["m-00000-of-00002.gguf", "m-00003-of-00002.gguf", "m-00001-of-99999.gguf"])
def test_a_part_is_one_of_so_many(tmp_path: Path, name: str) -> None:
    assert "can't be one of so many parts" in refusal(write_gguf(tmp_path / name, gguf()))


TENSOR = tensor("t", (1,), 24, 0)
HOSTILE: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "is no GGUF file"),
    "another file": (b"PK\3\4" + bytes(40), "is no GGUF file"),
    "a magic alone": (b"GGUF", "claims 4 bytes more"),
    "2^60 tensors": (gguf(counts=(2**60, 0)), "claims 27670116110564327424 bytes more"),
    "2^64-1 figures": (gguf(counts=(0, 2**64 - 1)), "bytes more at"),
    "more tensors than bytes": (gguf(counts=(2, 0)), "claims 48 bytes more"),
    "a key of 2^63 bytes": (gguf(struct.pack("<Q", 2**63) + bytes(20)), "claims 9223372036854775808 bytes more"),
    "a key of nothing": (gguf(number("", U8, 1)), "a name of 0 bytes"),
    "a key of 2,000": (gguf(number("k" * 2_000, U8, 1)), "a name of 2000 bytes"),
    "a key that isn't UTF-8": (gguf(text(b"\xff") + struct.pack("<IB", U8, 1)), "isn't UTF-8"),
    "a key twice": (gguf(number("k", U8, 1), number("k", U8, 1)), "'k' stands there twice"),
    "a skipped key twice": (gguf(pair("k", ARRAY, array(STRING, 0)), number("k", U8, 1)), "'k' stands there twice"),
    "a value of no kind": (gguf(pair("k", 13, bytes(8))), "a value of an unknown kind"),
    "an array of no kind": (gguf(pair("k", ARRAY, array(99, 1, array(U8, 0)))), "a value of an unknown kind"),
    "a text of 2^62 bytes": (gguf(pair("k", STRING, struct.pack("<Q", 2**62))), "claims 4611686018427387904"),
    "an array of 2^61": (gguf(pair("k", ARRAY, array(U64, 2**61))), "claims 18446744073709551616 bytes more"),
    "an array of 2^61 texts": (gguf(pair("k", ARRAY, array(STRING, 2**61))), "claims 18446744073709551616"),
    "an array of 2^61 arrays": (gguf(pair("k", ARRAY, array(ARRAY, 2**61))), "claims 27670116110564327424"),
    "texts beyond the end": (
        gguf(pair("k", ARRAY, array(STRING, 2, text("a") + struct.pack("<Q", 99)))), "claims 116 bytes more"
    ),
    "deep arrays": (gguf(pair("k", ARRAY, array(ARRAY, 1) * 9)), "nested too deep"),
    "5 dimensions": (gguf(tensors=(tensor("t", (1,) * 5, 24, 0),)), "'t' has 5 dimensions"),
    "2^32-1 dimensions": (gguf(tensors=(text("t") + struct.pack("<I", 2**32 - 1) + bytes(40),)), "4294967295 dim"),
    "2^64 elements": (gguf(tensors=(tensor("t", (2**32, 2**32), 24, 0),)), "more than 2^63-1 elements"),
    "2^63 bytes": (gguf(tensors=(tensor("t", (2**62,), 28, 0),)), "beyond the file's end: 36893488147419103232 b"),
    "rows of no whole blocks": (gguf(tensors=(tensor("t", (33,), 2, 0),)), "rows of 33, no whole blocks of 32"),
    "one element of a block": (gguf(tensors=(tensor("t", (), 2, 0),)), "rows of 1, no whole blocks of 32"),
    "beyond the end": (gguf(tensors=(tensor("t", (65,), 24, 0),)), "65 bytes at 0 of the data, where 64 are"),
    "far beyond the end": (gguf(tensors=(tensor("t", (1,), 24, 2**63),)), "at 9223372036854775808 of the data, wh"),
    "unknown beyond the end": (gguf(tensors=(tensor("t", (1,), 99, 96),)), "0 bytes at 96 of the data, where 0 are"),
    "not aligned": (gguf(tensors=(tensor("t", (1,), 24, 8),)), "isn't aligned to 32 bytes"),
    "overlap": (gguf(tensors=(tensor("s", (33,), 24, 0), tensor("t", (1,), 24, 32))), "'s' lies over another"),
    "unknown on another": (gguf(tensors=(tensor("s", (1,), 24, 0), tensor("t", (1,), 99, 0))), "'s' lies over"),
    "unknown twice": (gguf(tensors=(tensor("s", (1,), 99, 0), tensor("t", (1,), 99, 0))), "lies over another"),
    "a tensor twice": (gguf(tensors=(TENSOR, TENSOR)), "'t' lies over another"),
    "an empty tensor twice": (gguf(tensors=(tensor("t", (0,), 24, 0),) * 2), "'t' stands there twice"),
    "a name that isn't UTF-8": (gguf(tensors=(tensor(b"\xc3", (1,), 24, 0),)), "isn't UTF-8"),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_what_is_no_header_is_refused_with_the_reason(case: str, tmp_path: Path) -> None:
    header, why = HOSTILE[case]
    path = tmp_path / "m.gguf"
    cut = case in {"nothing", "a magic alone", "more tensors than bytes"} or "claims" in why
    _ = path.write_bytes(header) if cut else write_gguf(path, header, 64)
    said = refusal(path)
    assert why in said
    assert "m.gguf" in said
    assert len(said) < 300


def test_a_header_that_ends_anywhere_is_refused(tmp_path: Path) -> None:
    whole = gguf(number("k", U32, 7), pair("a", ARRAY, array(STRING, 2, text("x") * 2)), tensors=(TENSOR,))
    path = tmp_path / "m.gguf"
    for end in range(len(whole)):
        path.write_bytes(whole[:end])
        assert "m.gguf" in refusal(path)
    assert len(read(write_gguf(path, whole, 1)).tensors) == 1


def test_bounds_are_met_by_counts_before_anything_is_walked(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"

    def said(header: bytes, size: int = 10**12) -> str:
        path.write_bytes(header)
        with path.open("r+b") as file:
            file.truncate(size)
        return refusal(path)

    assert f"more than {MAX_TENSORS} tensors or" in said(gguf(counts=(MAX_TENSORS + 1, 0)))
    assert f"or {MAX_PAIRS} figures" in said(gguf(counts=(0, MAX_PAIRS + 1)))
    assert f"more than {MAX_STRINGS} strings" in said(gguf(pair("k", ARRAY, array(STRING, MAX_STRINGS + 1))))
    assert "arrays within arrays" in said(gguf(pair("k", ARRAY, array(ARRAY, 10_001))))
    many = (pair(f"{at}", ARRAY, array(U8, MAX_ARRAY, bytes(MAX_ARRAY))) for at in range(100))
    assert f"more than {MAX_KEPT_BYTES} bytes of names and figures" in said(gguf(*many))


def test_long_texts_far_apart_are_jumped_over_and_not_without_end(tmp_path: Path) -> None:
    """Each jump reads 64 KiB anew: 2,000 of them 128 MiB."""
    for count, fine in ((1_000, True), (3_000, False)):
        path = write_gguf(tmp_path / "m.gguf", gguf(pair("k", ARRAY, array(STRING, count)), counts=(0, 1)))
        with path.open("r+b") as file:
            at = 24 + 9 + 16
            for _ in range(count):
                file.seek(at)
                file.write(struct.pack("<Q", 2**20))
                at += 8 + 2**20
            file.truncate(at)
        if fine:
            assert read(path) == Gguf({}, ())
        else:
            assert f"longer than {MAX_READ_BYTES} bytes" in refusal(path)


def test_what_is_no_file_is_not_opened(tmp_path: Path) -> None:
    assert refusal(tmp_path).endswith(" is no file")


KINDS = st.sampled_from([GGMLQuantizationType.F32, GGMLQuantizationType.Q4_K, GGMLQuantizationType.Q8_0])


@given(st.lists(st.tuples(KINDS, st.integers(0, 3), st.integers(1, 3)), max_size=4))
def test_tensors_lie_where_the_library_puts_them(
    tmp_path_factory: pytest.TempPathFactory, drawn: list[tuple[GGMLQuantizationType, int, int]]
) -> None:
    """Padded to 32 bytes each, they add up to the file."""
    path = tmp_path_factory.getbasetemp() / "drawn.gguf"
    path.unlink(missing_ok=True)
    made = writer(path)
    for at, (kind, rows, blocks) in enumerate(drawn):
        zeros(made, f"t{at}", kind, rows, 256 * blocks)
    finish(made)
    read_back = read(path).tensors
    told = [(f"t{at}", (rows, 256 * blocks), kind.name.lower()) for at, (kind, rows, blocks) in enumerate(drawn)]
    assert [(t.name, t.shape, t.dtype) for t in read_back] == told
    for t, (kind, _, _) in zip(read_back, drawn, strict=True):
        block, size = GGML_QUANT_SIZES[kind]
        assert t.n_bytes == prod(t.shape) // block * size
    head = path.stat().st_size - sum(-(-t.n_bytes // 32) * 32 for t in read_back)
    assert 0 < head < 400
    assert head % 32 == 0 or not drawn
