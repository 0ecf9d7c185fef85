"""From what a client says of a model to its cost. Opens nothing."""

from math import prod

from app.checkpoints.architectures import architecture, shape
from app.checkpoints.costs import Priced, price
from app.checkpoints.safetensors import element_bits
from app.checkpoints.tensors import CheckpointError, Tensor
from app.placement.errors import InvalidFieldError
from app.placement.units import INT_MAX
from app.schemas.catalog import ModelConfigIn, ModelTensorsIn, TensorIn
from app.schemas.models import CostIn


def priced(asked: CostIn | ModelTensorsIn | ModelConfigIn) -> Priced:
    """The cost that a request describes. O(tensors). Raises InvalidFieldError."""
    if isinstance(asked, CostIn):
        return Priced(asked.to_cost())
    try:
        if isinstance(asked, ModelConfigIn):
            alone = architecture(asked.config, asked.dtype)
            return price(alone.tensors or (), alone, kv_dtype=asked.kv_dtype, source=asked.source)
        known = None if asked.config is None else shape(asked.config)
        tensors = [_tensor(given, at) for at, given in enumerate(asked.tensors)]
        return price(tensors, known, kv_dtype=asked.kv_dtype, source=asked.source)
    except CheckpointError as error:
        raise InvalidFieldError(error.detail, "/tensors" if isinstance(asked, ModelTensorsIn) else "/config") from None


def _tensor(given: TensorIn, at: int) -> Tensor:
    dtype = (given.dtype or "unknown").lower()
    if given.bytes is not None:
        return Tensor(given.name, tuple(given.shape), dtype, given.bytes)
    if given.dtype is None:
        raise InvalidFieldError("give dtype, or bytes", f"/tensors/{at}")
    bits = element_bits(dtype)
    if bits is None:
        raise InvalidFieldError("has a dtype whose size isn't known; give bytes", f"/tensors/{at}/dtype")
    size = -(-prod(given.shape) * bits // 8)
    if size > INT_MAX:
        raise InvalidFieldError("is beyond 2^63-1 bytes", f"/tensors/{at}/shape")
    return Tensor(given.name, tuple(given.shape), dtype, size)
