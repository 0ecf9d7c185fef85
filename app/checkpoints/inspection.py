"""What ``cleave inspect`` does: a path in, a cost out. Headers only, and nothing beside the path."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from app.checkpoints import gguf, safetensors
from app.checkpoints.architectures import architecture, shape
from app.checkpoints.caches import DEFAULT
from app.checkpoints.costs import Priced, price
from app.checkpoints.gguf_architecture import architecture as gguf_architecture
from app.checkpoints.tensors import CheckpointError

MAX_CONFIG_BYTES = 4 * 1024 * 1024


def inspect(path: Path, *, kv_dtype: str = DEFAULT, dtype: str | None = None) -> Priced:
    """The cost of the model at a path: a folder, a safetensors file or index, a GGUF file, or a config.json alone.

    ``dtype`` is what the weights are stored in where there are none to look at. Raises CheckpointError.
    """
    try:
        return _inspected(path, kv_dtype, dtype)
    except OSError as error:
        raise CheckpointError(f"can't read {path}: {error.strerror}") from None


def _inspected(path: Path, kv_dtype: str, dtype: str | None) -> Priced:
    if path.is_dir():
        return _folder(path, kv_dtype, dtype)
    name = path.parent.resolve().name if path.name in {"config.json", "model.safetensors"} else path.stem
    if path.suffix == ".gguf":
        header = gguf.read(path)
        known = gguf_architecture(header.metadata, header.tensors)
        title = header.metadata.get("general.name")
        named = title if isinstance(title, str) else name
        return price(header.tensors, known, kv_dtype=kv_dtype, name=_plain(named), source=_plain(path.name))
    if path.suffix == ".safetensors" or path.name.endswith(".safetensors.index.json"):
        return _checkpoint(path, path.parent / "config.json", kv_dtype, name)
    alone = architecture(_config(path), dtype)
    return price(alone.tensors or (), alone, kv_dtype=kv_dtype, name=_plain(name), source=_plain(path.name))


def _folder(folder: Path, kv_dtype: str, dtype: str | None) -> Priced:
    """A folder's safetensors files, else its GGUF file, else its config."""
    if next(folder.glob("*.safetensors"), None) is not None:
        return _checkpoint(folder, folder / "config.json", kv_dtype, folder.resolve().name)
    whole = [path for path in sorted(folder.glob("*.gguf")) if not path.name.startswith("mmproj")]
    models = [path for path in whole if gguf.PART.search(path.name) is None or "-00001-of-" in path.name]
    if len(models) > 1:
        raise CheckpointError(f"{folder} has {len(models)} GGUF models; name one")
    if models:
        return _inspected(models[0], kv_dtype, dtype)
    if (folder / "config.json").is_file():
        return _inspected(folder / "config.json", kv_dtype, dtype)
    raise CheckpointError(f"{folder} has neither safetensors nor GGUF files, nor a config.json")


def _checkpoint(path: Path, config: Path, kv_dtype: str, name: str) -> Priced:
    """Bytes from the files' headers, caches and parameters from the config beside them where there is one."""
    files = safetensors.read_all(path)
    known = shape(_config(config)) if config.is_file() else None
    made = price(files.tensors, known, kv_dtype=kv_dtype, name=_plain(name), source=_plain(path.name))
    return Priced(made.cost, (*files.notes, *made.notes))


def _config(path: Path) -> Mapping[str, Any]:
    """A config.json, also with the bare Infinity that some are published with."""
    if path.stat().st_size > MAX_CONFIG_BYTES:
        raise CheckpointError(f"{path.name} is larger than {MAX_CONFIG_BYTES} bytes")
    try:
        config = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path.name} is not JSON: {str(error)[:100]}") from None
    if not isinstance(config, dict):
        raise CheckpointError(f"{path.name} is no object")
    return config


def _plain(text: str) -> str:
    """A name that may stand in an answer: printable, and not long."""
    return "".join(letter for letter in text if letter.isprintable())[:255]
