import json
import struct
from ctypes import addressof, create_string_buffer
from math import prod
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors import SafetensorError, TensorSpec, deserialize, serialize_file

from app.checkpoints.safetensors import MAX_HEADER_BYTES, MAX_INDEXED, MAX_TENSORS, element_bits, read, read_all
from app.checkpoints.tensors import CheckpointError, Tensor
from tests.checkpoints.headers import entry, write_safetensors

ELEMENT_BYTES = {
    **dict.fromkeys(("float64", "int64", "uint64", "complex64"), 8),
    **dict.fromkeys(("float32", "int32", "uint32"), 4),
    **dict.fromkeys(("float16", "bfloat16", "int16", "uint16"), 2),
    **dict.fromkeys(("bool", "int8", "uint8", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"), 1),
    **dict.fromkeys(("float8_e8m0fnu", "float4_e2m1fn_x2"), 1),
}
"""All dtypes that the library writes, by its names for them; an element of float4_e2m1fn_x2 is a pair."""


def save(path: Path, tensors: dict[str, tuple[str, list[int]]], metadata: dict[str, str] | None = None) -> Path:
    """Have the library write tensors of zeros."""
    sizes = {name: prod(shape) * ELEMENT_BYTES[dtype] for name, (dtype, shape) in tensors.items()}
    zeros = create_string_buffer(max(sizes.values()) + 1)
    specs = {
        name: TensorSpec(dtype=dtype, shape=shape, data_ptr=addressof(zeros), data_len=sizes[name])
        for name, (dtype, shape) in tensors.items()
    }
    serialize_file(specs, path, metadata)
    return path


def told_by_the_library(path: Path) -> list[tuple[str, dict[str, Any]]]:
    """Names with shape, dtype and data. Raises SafetensorError."""
    told: list[tuple[str, dict[str, Any]]] = deserialize(path.read_bytes())  # type: ignore[no-untyped-call]  # its stub
    return told


def refusal(path: Path) -> str:
    """What is said of a file that isn't read."""
    with pytest.raises(CheckpointError) as refused:
        read_all(path)
    return refused.value.detail


@pytest.mark.parametrize("dtype", ELEMENT_BYTES)
def test_each_dtype_has_the_bytes_that_the_library_wrote(dtype: str, tmp_path: Path) -> None:
    path = save(tmp_path / "m.safetensors", {"w": (dtype, [3, 16])})
    ((name, told),) = told_by_the_library(path)
    (tensor,) = read(path)
    assert tensor == Tensor(name, tuple(told["shape"]), told["dtype"].lower(), len(told["data"]))
    bits = element_bits(tensor.dtype)
    assert bits is not None
    assert tensor.n_elements * bits == tensor.n_bytes * 8


def test_a_file_of_several_tensors_reads_as_the_library_reads_it(tmp_path: Path) -> None:
    shapes: dict[str, tuple[str, list[int]]] = {
        "model.embed_tokens.weight": ("bfloat16", [100, 8]),
        "model.layers.0.mlp.up_proj.weight": ("float8_e4m3fn", [32, 8]),
        "model.layers.0.mlp.up_proj.weight_scale_inv": ("float32", [1, 1]),
        "scalar": ("int64", []),
        "nothing": ("float16", [0, 7]),
        'q"uoted\\ and ünicode': ("uint8", [3]),
    }
    path = save(tmp_path / "m.safetensors", shapes, {"format": "pt", "brace": '{"a": [1, "}"]}'})
    told = {(name, tuple(t["shape"]), t["dtype"].lower(), len(t["data"])) for name, t in told_by_the_library(path)}
    assert {(t.name, t.shape, t.dtype, t.n_bytes) for t in read(path)} == told


def test_bytes_of_dtypes_that_nobody_knows_are_those_of_the_offsets(tmp_path: Path) -> None:
    path = write_safetensors(tmp_path / "m.safetensors", {"a": entry(0, 13, 9, 9, dtype="F3_NEW")}, 13)
    assert read(path) == (Tensor("a", (9, 9), "f3_new", 13),)


def test_six_bits_are_three_quarters_of_a_byte(tmp_path: Path) -> None:
    path = write_safetensors(tmp_path / "m.safetensors", {"a": entry(0, 24, 32, dtype="F6_E2M3")}, 24)
    assert read(path)[0].n_bytes == 24


def test_a_header_may_be_padded_and_spaced_and_unordered(tmp_path: Path) -> None:
    header = json.dumps({"b": entry(3, 5), "a": entry(0, 3) | {"later": None}}, indent=3).encode() + b"   "
    path = write_safetensors(tmp_path / "m.safetensors", header, 5)
    assert [(t.name, t.n_bytes) for t in read(path)] == [("b", 2), ("a", 3)]


def test_a_file_may_hold_nothing(tmp_path: Path) -> None:
    assert read(write_safetensors(tmp_path / "m.safetensors", b"{ }")) == ()


HOSTILE: dict[str, tuple[Any, int, str]] = {
    "not JSON": (b"hello", 0, "no JSON object"),
    "a list": (b"[]", 0, "no JSON object"),
    "cut": (b'{"a":{"dtype":"U8"', 0, "broken at byte 1"),
    "empty": (b"", 0, "no JSON object"),
    "comma": (b'{"a":%b,}' % json.dumps(entry(0, 1)).encode(), 1, "broken at byte"),
    "trailing": (b"{}{}", 0, "something follows"),
    "NaN": (b'{"a":{"dtype":"U8","shape":[NaN],"data_offsets":[0,1]}}', 1, "is not JSON"),
    "float": (b'{"a":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}}', 1, "needs a dtype"),
    "true": (b'{"a":{"dtype":"U8","shape":[true],"data_offsets":[0,1]}}', 1, "needs a dtype"),
    "negative": ({"a": entry(0, 1, -1)}, 1, "needs a dtype"),
    "no shape": (b'{"a":{"dtype":"U8","data_offsets":[0,1]}}', 1, "needs a dtype"),
    "a shape of lists": (b'{"a":{"dtype":"U8","shape":[[1]],"data_offsets":[0,1]}}', 1, "needs a dtype"),
    "one offset": (b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[1]}}', 1, "two data_offsets"),
    "three offsets": (b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1,1]}}', 1, "two data_offsets"),
    "a number for a dtype": ({"a": entry(0, 1) | {"dtype": 3}}, 1, "needs a dtype"),
    "a dtype twice": (b'{"a":{"dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]}}', 1, "duplicate key"),
    "a name twice": (b'{"a":%b,"a":%b}' % ((json.dumps(entry(0, 1)).encode(),) * 2), 1, "'a' stands there twice"),
    "a name twice, spelled otherwise": (
        b'{"a":%b,"\\u0061":%b}' % ((json.dumps(entry(0, 1)).encode(),) * 2), 1, "'a' stands there twice"
    ),
    "metadata twice": (b'{"__metadata__":{},"__metadata__":{}}', 0, "'__metadata__' stands there twice"),
    "no name": ({"": entry(0, 1)}, 1, "is no name"),
    "a long name": ({"a" * 2_000: entry(0, 1)}, 1, "is no name"),
    "a longer name": ({"a" * 5_000: entry(0, 1)}, 1, "bytes of its header"),
    "a tensor that is a text": ({"a": "b"}, 0, "names none"),
    "a tensor that is a number": ({"a": 1}, 0, "names none"),
    "a tensor that is a list": ({"a": []}, 0, "broken at byte 1"),
    "a name that isn't UTF-8": (b'{"\xff":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', 1, "invalid unicode"),
    "half a surrogate": (b'{"\\ud800":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', 1, "is not JSON"),
    "beyond the file": ({"a": entry(0, 2)}, 1, "lies outside"),
    "backwards": ({"a": entry(2, 1, 0)}, 2, "lies outside"),
    "overlap": ({"a": entry(0, 2), "b": entry(1, 3)}, 3, "overlap at byte 1"),
    "gap": ({"a": entry(0, 1), "b": entry(2, 3)}, 3, "gap at byte 2"),
    "a gap before": ({"a": entry(1, 2)}, 2, "gap at byte 1"),
    "a rest": ({"a": entry(0, 1)}, 2, "gap at byte 2"),
    "the whole twice": ({"a": entry(0, 2), "b": entry(0, 2)}, 2, "overlap at byte 0"),
    "other bytes than its shape": ({"a": entry(0, 5, 2, dtype="BF16")}, 5, "has 5 bytes; its dtype and shape"),
    "half a byte": ({"a": entry(0, 1, 3, dtype="F4")}, 1, "dtype and shape"),
    "2^64 by its product": ({"a": entry(0, 0, 2**32, 2**32)}, 0, "dtype and shape"),
    "2^64 of nobody's dtype": ({"a": entry(0, 0, 2**32, 2**32, dtype="X")}, 0, "dtype and shape"),
    "2^63": ({"a": entry(0, 0, 2**63, 0)}, 0, "needs a dtype"),
    "10^4000": (b'{"a":{"dtype":"U8","shape":[%b],"data_offsets":[0,1]}}' % (b"9" * 4_000), 1, "needs a dtype"),
    "10^5000": (b'{"a":{"dtype":"U8","shape":[%b],"data_offsets":[0,1]}}' % (b"9" * 5_000), 1, "bytes of its header"),
    "9 dimensions": ({"a": entry(0, 1, *[1] * 9)}, 1, "needs a dtype"),
    "deep": (b'{"a":' * 100_000, 0, "broken at byte 1"),
    "deep lists": (b'{"a":{"shape":%b}}' % (b"[" * 3_000 + b"]" * 3_000), 0, "bytes of its header"),
    "less deep lists": (b'{"a":{"shape":%b}}' % (b"[" * 1_000 + b"]" * 1_000), 0, "recursion limit"),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_what_is_no_header_is_refused_with_the_reason(case: str, tmp_path: Path) -> None:
    header, data_bytes, why = HOSTILE[case]
    said = refusal(write_safetensors(tmp_path / "m.safetensors", header, data_bytes))
    assert why in said
    assert "m.safetensors" in said
    assert len(said) < 500


def test_lengths_are_checked_before_anything_is_read(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    for raw, why in {
        b"": "cut short: its header has 0 bytes, the file 0",
        b"\1\0\0": "cut short",
        struct.pack("<Q", 2**63) + b"{}": "cut short: its header has 9223372036854775808 bytes, the file 10",
        struct.pack("<Q", 3) + b"{}": "cut short",
    }.items():
        path.write_bytes(raw)
        assert why in refusal(path)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", MAX_HEADER_BYTES + 1))
        file.truncate(10**9)
    assert f"a header of {MAX_HEADER_BYTES + 1} bytes; up to {MAX_HEADER_BYTES} are read" in refusal(path)


def test_a_file_has_no_more_tensors_than_can_be_read_at_once(tmp_path: Path) -> None:
    header = {f"{at}": entry(at, at + 1) for at in range(MAX_TENSORS + 1)}
    path = write_safetensors(tmp_path / "m.safetensors", header, len(header))
    assert refusal(path) == f"m.safetensors has more than {MAX_TENSORS} tensors"
    del header[str(MAX_TENSORS)]
    assert len(read(write_safetensors(path, header, len(header)))) == MAX_TENSORS


def test_what_is_no_file_is_not_opened(tmp_path: Path) -> None:
    (tmp_path / "m.safetensors").mkdir()
    with pytest.raises(CheckpointError, match=r"m\.safetensors is no file"):
        read(tmp_path / "m.safetensors")


small = st.integers(0, 3)


@given(
    st.dictionaries(
        st.sampled_from("abcd"),
        st.tuples(st.sampled_from(["U8", "BF16", "F4"]), st.lists(small, max_size=2), small, small),
        max_size=3,
    ),
    small,
)
def test_a_header_is_read_as_the_library_reads_it_or_refused_as_it_refuses_it(
    tmp_path_factory: pytest.TempPathFactory, drawn: dict[str, tuple[str, list[int], int, int]], data_bytes: int
) -> None:
    header = {name: {"dtype": d, "shape": s, "data_offsets": [b, e]} for name, (d, s, b, e) in drawn.items()}
    path = write_safetensors(tmp_path_factory.getbasetemp() / "drawn.safetensors", header, data_bytes)
    try:
        told = {(name, tuple(t["shape"]), len(t["data"])) for name, t in told_by_the_library(path)}
    except SafetensorError:
        refusal(path)
    else:
        assert {(t.name, t.shape, t.n_bytes) for t in read(path)} == told


def shards(folder: Path, *names: str, total: int | None = None, index: str = "model.safetensors.index.json") -> Path:
    """Files of one tensor of 4 bytes each, t0, t1, .., and an index that names them."""
    for at, name in enumerate(names):
        write_safetensors(folder / name, {f"t{at}": entry(0, 4)}, 4)
    metadata = {} if total is None else {"total_size": total}
    weight_map = {f"t{at}": name for at, name in enumerate(names)}
    (folder / index).write_text(json.dumps({"metadata": metadata, "weight_map": weight_map}, indent=2))
    return folder / index


def names_in(path: Path) -> list[str]:
    return [t.name for t in read_all(path).tensors]


A, B = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


def test_a_set_is_read_by_its_folder_its_index_or_any_part(tmp_path: Path) -> None:
    index = shards(tmp_path, A, B, total=8)
    for path in (tmp_path, index, tmp_path / A, tmp_path / B):
        assert names_in(path) == ["t0", "t1"]
        assert read_all(path).notes == ()


def test_a_set_needs_no_index(tmp_path: Path) -> None:
    shards(tmp_path, A, B).unlink()
    assert names_in(tmp_path) == ["t0", "t1"]


def test_what_else_lies_in_a_folder_is_left_out(tmp_path: Path) -> None:
    shards(tmp_path, "consolidated.safetensors", index="consolidated.safetensors.index.json")
    for name in ("adapter_model.safetensors", "original/model.safetensors", "training_args.safetensors"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write_safetensors(tmp_path / name, {"t0": entry(0, 1)}, 1)
    for name in ("pytorch_model.bin", "model.pkl", "config.json"):
        (tmp_path / name).write_bytes(b"\x80\x04")
    assert "no model's safetensors file" in refusal(tmp_path)
    write_safetensors(tmp_path / "model.safetensors", {"mine": entry(0, 1)}, 1)
    assert names_in(tmp_path) == ["mine"]
    assert names_in(tmp_path / "consolidated.safetensors") == ["t0"]


@pytest.mark.parametrize("by_index", [True, False])
def test_a_missing_part_is_named(tmp_path: Path, *, by_index: bool) -> None:
    index = shards(tmp_path, A, B)
    (tmp_path / A).unlink()
    if not by_index:
        index.unlink()
    assert f"{A}{', which model.safetensors.index.json names,' if by_index else ''} is missing" in refusal(tmp_path)
    assert f"{A} is missing" in refusal(tmp_path / B)


def test_a_tensor_stands_in_one_file_only(tmp_path: Path) -> None:
    for name in ("model.safetensors", "model.fp16.safetensors"):
        write_safetensors(tmp_path / name, {"same": entry(0, 4)}, 4)
    said = refusal(tmp_path)
    assert said == "tensor 'same' stands in two files, model.fp16.safetensors and model.safetensors"


def test_another_total_size_is_a_note(tmp_path: Path) -> None:
    index = shards(tmp_path, A, B, total=9)
    assert read_all(index).notes == ("model.safetensors.index.json says total_size 9, the headers add up to 8",)


@pytest.mark.parametrize("total", [None, "nine", 8.0, 10**400])
def test_a_total_size_that_is_no_number_is_passed_over(tmp_path: Path, total: Any) -> None:
    index = shards(tmp_path, A, B, total=total)
    assert len(read_all(index).notes) == 0


def test_an_index_that_is_out_of_date_is_refused(tmp_path: Path) -> None:
    index = shards(tmp_path, A, B)
    write_safetensors(tmp_path / B, {"other": entry(0, 4)}, 4)
    assert refusal(index) == f"model.safetensors.index.json says that {B} has tensor 't1'; it hasn't"


@pytest.mark.parametrize(
    "name",
    [
        "../x.safetensors",
        "/x.safetensors",
        "sub/x.safetensors",
        "..\\x.safetensors",
        "x.bin",
        "..",
        "a\nb",
        "",
        "x" * 300 + ".safetensors",
    ],
)
def test_an_index_names_files_beside_it_only(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    for at in (tmp_path, folder / "sub"):
        write_safetensors(at / "x.safetensors", {"t": entry(0, 4)}, 4)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": {"t": name}}))
    assert "which is no safetensors file beside it" in refusal(index)


def test_an_index_names_no_link_to_elsewhere(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "x.safetensors", {"t0": entry(0, 4)}, 4)
    folder = tmp_path / "model"
    folder.mkdir()
    index = shards(folder, "m.safetensors")
    (folder / "m.safetensors").unlink()
    (folder / "m.safetensors").symlink_to(tmp_path / "x.safetensors")
    assert refusal(index).endswith(
        "m.safetensors, which model.safetensors.index.json names, is a link that leaves its folder"
    )
    write_safetensors(folder / "y.safetensors", {"t0": entry(0, 4)}, 4)
    (folder / "m.safetensors").unlink()
    (folder / "m.safetensors").symlink_to("y.safetensors")
    assert names_in(index) == ["t0"]


def test_the_hubs_cache_of_links_to_blobs_is_read(tmp_path: Path) -> None:
    revision, blobs = tmp_path / "snapshots/abc", tmp_path / "blobs"
    revision.mkdir(parents=True)
    blobs.mkdir()
    index = shards(revision, A, B)
    for at, name in enumerate((index.name, A, B)):
        (revision / name).rename(blobs / f"blob{at}")
        (revision / name).symlink_to(f"../../blobs/blob{at}")
    assert names_in(revision) == names_in(index) == ["t0", "t1"]


INDEXES = {
    b"": "no JSON object",
    b"[]": "no JSON object",
    b"{}": "has no weight_map",
    b'{"weight_map":{}}': "names no file",
    b'{"weight_map":[]}': "broken at byte 1",
    b'{"weight_map":"a.safetensors"}': "no JSON object where one must start",
    b'{"weight_map":{"a":1}}': "is no name",
    b'{"weight_map":{"a":{}}}': "broken at byte 1",
    b'{"weight_map":{"a":"' + b"x" * 5_000 + b'"}}': "is no name",
    b'{"weight_map":{"a":"\\q.safetensors"}}': "is not JSON",
    b'{"weight_map":{"a":"b.safetensors"}} x': "something follows",
}


@pytest.mark.parametrize("raw", INDEXES)
def test_what_is_no_index_is_refused_with_the_reason(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "model.safetensors.index.json"
    path.write_bytes(raw)
    assert INDEXES[raw] in refusal(path)


def test_an_index_is_no_larger_than_can_be_walked_over(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors.index.json"
    path.write_bytes(b'{"weight_map":{%b}}' % b",".join([b'"a":"b"'] * (MAX_INDEXED + 50)))
    assert refusal(path) == f"{path.name} names more than {MAX_INDEXED} tensors"
    with path.open("r+b") as file:
        file.truncate(10**12)
    assert "is larger than" in refusal(path)


def test_several_indexes_are_not_guessed_among(tmp_path: Path) -> None:
    shards(tmp_path, "a.safetensors", index="a.safetensors.index.json")
    shards(tmp_path, "b.safetensors", index="b.safetensors.index.json")
    assert "has 2 indexes; name one" in refusal(tmp_path)
    assert names_in(tmp_path / "b.safetensors.index.json") == ["t0"]


def test_a_part_is_one_of_so_many(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "m-00003-of-00002.safetensors", {"t": entry(0, 4)}, 4)
    assert "can't be one of so many parts" in refusal(tmp_path / "m-00003-of-00002.safetensors")
    assert "can't be one of so many parts" in refusal(tmp_path)


def test_the_order_of_parts_is_that_of_their_numbers(tmp_path: Path) -> None:
    names = [f"model-{at:05}-of-00011.safetensors" for at in range(1, 12)]
    shards(tmp_path, *names)
    assert names_in(tmp_path) == [f"t{at}" for at in range(11)]
