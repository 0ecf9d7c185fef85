"""The kinds of fields that requests and reports are made of, with their bounds."""

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints

from app.placement.nodes import KNOWN_DEVICES
from app.placement.units import INT_MAX

REPORT_MAX_BYTES = 64 * 1024
PLAN_MAX_BYTES = 1024 * 1024
SIMULATION_MAX_BYTES = 4 * 1024 * 1024
MODEL_MAX_BYTES = 16 * 1024 * 1024

MAX_EXACT_FLOAT = 2**53

MAX_NODES = 10_000
MAX_BATCH = 1_000
MAX_DEVICES = 64
MAX_LABELS = 32

# No control characters and none that reorder text: a report ends up in terminals and pages.
PLAIN = r"^[^\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]*$"
NAME = r"^[A-Za-z0-9._:\[\]-]+$"
DEVICES = rf"^({'|'.join(sorted(KNOWN_DEVICES))})(\+({'|'.join(sorted(KNOWN_DEVICES))}))*$"
CURSOR = r"^[A-Za-z0-9_=-]+$"
PRECISION = r"^(f32|f16|bf16|fp8|int8|q8_0|mxfp4|nvfp4|f[1-9][0-9]?e[0-9]{1,2}m[0-9]{1,2})$"
LAYERS = r"^[0-9]{1,18}:[0-9]{1,18}$"


PATTERNS = {
    PLAIN: "may have no control characters and none that reorder text",
    NAME: "may have letters, digits and . _ : [ ] - only",
    DEVICES: f"must be of {', '.join(sorted(KNOWN_DEVICES))}, several joined by +",
    LAYERS: "must be start:end, two numbers",
    PRECISION: "must be of f32, f16, bf16, fp8, int8, q8_0, mxfp4, nvfp4, or a float by its bits such as f8e4m3",
}
"""What patterns mean, for whom the pattern itself would puzzle."""


def _not_a_dot_segment(name: str) -> str:
    """``.`` and ``..`` vanish from URLs on their way."""
    if name in {".", ".."}:
        raise ValueError("must not be . or ..")
    return name


def _whole(value: Any) -> Any:
    """JSON has one kind of number: 4e9 is an integer, as long as a float holds it exactly."""
    if isinstance(value, float) and value.is_integer() and abs(value) <= MAX_EXACT_FLOAT:
        return int(value)
    return value


def _all_whole(value: Any) -> Any:
    """The same for a list: one call instead of one a number, where there are 100,000 lists."""
    if isinstance(value, list) and any(type(item) is float for item in value):
        return [_whole(item) for item in value]
    return value


WHOLE_NUMBERS = BeforeValidator(_all_whole)

WHOLE = BeforeValidator(_whole)
"""Stands behind an integer's bounds, so that these go into the schema."""

NodeId = Annotated[
    str, StringConstraints(min_length=1, max_length=255, pattern=NAME), AfterValidator(_not_a_dot_segment)
]
ModelName = Annotated[
    str, StringConstraints(min_length=1, max_length=255, pattern=NAME), AfterValidator(_not_a_dot_segment)
]
Addr = Annotated[str, StringConstraints(min_length=1, max_length=255, pattern=NAME)]
Text = Annotated[str, StringConstraints(max_length=255, pattern=PLAIN)]
Path = Annotated[str, StringConstraints(max_length=4096, pattern=PLAIN)]
LabelKey = Annotated[str, StringConstraints(min_length=1, max_length=63, pattern=PLAIN)]


def at_most(number: int) -> BeforeValidator:
    """Refuse an object of more keys before looking at each; pydantic would name the faults of all of them first."""

    def check(value: Any) -> Any:
        if isinstance(value, dict) and len(value) > number:
            raise ValueError(f"may have {number} keys")
        return value

    return BeforeValidator(check)


Labels = Annotated[dict[LabelKey, Text], Field(max_length=MAX_LABELS), at_most(MAX_LABELS)]

Bytes = Annotated[int, Field(ge=0, le=INT_MAX), WHOLE]
Count = Annotated[int, Field(ge=0, le=INT_MAX), WHOLE]
Rate = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Flops = Annotated[float, Field(ge=0, le=1e30, allow_inf_nan=False)]
Gigabytes = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]
