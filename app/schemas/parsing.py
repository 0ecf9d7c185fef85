"""From the bytes of a request to a model, strictly, with every fault named and no value echoed."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import jiter
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic.json_schema import JsonSchemaMode, models_json_schema
from pydantic_core import ErrorDetails

from app.placement.errors import CleaveError
from app.schemas.fields import PATTERNS

MAX_ERRORS = 20
MAX_UNKNOWN_KEYS = 50
MAX_POINTER_CHARS = 255

MESSAGES = {
    "missing": "is required",
    "extra_forbidden": "is not a field of this request",
    "string_pattern_mismatch": "has characters or a form that are not allowed here",
    "int_parsing_size": "is beyond 2^63-1",
    "finite_number": "must be a finite number",
    "int_from_float": "must be a whole number",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
}
"""Where pydantic's own words would puzzle a caller."""

DUPLICATE_KEY = re.compile(r'Detected duplicate key ".*"', re.DOTALL)
"""jiter would echo the client's key."""

MARK = "\ue000"
"""Begins our tags of alternatives, which pydantic puts into locations beside the client's own keys."""

UNREADABLE = re.compile(r"[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""What would draw on a terminal, or can't be sent."""

Model = TypeVar("Model", bound=BaseModel)


class _Bounded(BaseModel):
    """An object with few more keys than fields: to name each of 80,000 unknown ones would take seconds."""

    @model_validator(mode="before")
    @classmethod
    def _few_unknown_keys(cls, value: Any) -> Any:
        if isinstance(value, dict) and len(value) > len(cls.model_fields) + MAX_UNKNOWN_KEYS:
            raise ValueError(f"has {len(value)} fields, many more than there are")
        return value


class Strict(_Bounded):
    """A request: an unknown field is an error, since a mistyped one must not be planned without."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Liberal(_Bounded):
    """A report: unknown fields are let through, to be named in a warning."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)


class Out(BaseModel):
    """An answer. Its fields have no defaults, so that an answer is always whole."""

    model_config = ConfigDict(frozen=True)


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong with a request: where (a JSON pointer into the body) and what."""

    pointer: str
    message: str


@dataclass(eq=False)
class MalformedJsonError(CleaveError):
    """The body isn't JSON as RFC 8259 and I-JSON have it."""

    detail: str


@dataclass(eq=False)
class InvalidRequestError(CleaveError):
    """The body is JSON, but not what this call takes."""

    errors: tuple[Fault, ...]
    detail: str = field(init=False)

    def __post_init__(self) -> None:
        """Say the first fault at once, so that a person needn't look further."""
        first, more = self.errors[0], len(self.errors) - 1
        self.detail = f"{first.pointer or 'the body'}: {first.message}" + (f" (and {more} more)" if more else "")


def parse(model: type[Model], raw: bytes) -> Model:
    """The request that ``raw`` spells. O(bytes).

    jiter reads the JSON, because pydantic's own reading lets duplicate keys and NaN pass, and both hide mistakes.
    Raises MalformedJsonError, InvalidRequestError.
    """
    try:
        value = jiter.from_json(raw, allow_inf_nan=False, cache_mode="keys", catch_duplicate_keys=True)
    except ValueError as error:
        why = DUPLICATE_KEY.sub("a key stands twice", str(error))
        raise MalformedJsonError(f"the body is not valid JSON: {why}") from None
    try:
        return model.model_validate(value, strict=True)
    except ValidationError as error:
        raise InvalidRequestError(faults(error.errors(include_url=False, include_input=False))) from None


def faults(errors: Iterable[ErrorDetails]) -> tuple[Fault, ...]:
    """Pydantic's findings as pointers and plain words, at most ``MAX_ERRORS``."""
    found = list(errors)
    named = [Fault(pointer(e["loc"]), _message(e)) for e in found[:MAX_ERRORS]]
    if len(found) > MAX_ERRORS:
        named.append(Fault("", f"and {len(found) - MAX_ERRORS} more"))
    return tuple(named)


def pointer(location: Iterable[int | str]) -> str:
    """A JSON pointer (RFC 6901), cut where a client's own key makes it absurdly long."""
    named = (str(part) for part in location if not str(part).startswith(MARK) and part != "[key]")
    readable = (UNREADABLE.sub(lambda found: ascii(found[0])[1:-1], part) for part in named)
    escaped = (part.replace("~", "~0").replace("/", "~1") for part in readable)
    return "".join(f"/{part}" for part in escaped)[:MAX_POINTER_CHARS]


def _message(error: ErrorDetails) -> str:
    pattern = error.get("ctx", {}).get("pattern")
    if pattern in PATTERNS:
        return PATTERNS[pattern]
    return MESSAGES.get(error["type"], error["msg"].removeprefix("Value error, "))


def components(*models: type[BaseModel]) -> dict[str, Any]:
    """JSON schemas of request models by name, those that they refer to included."""
    pairs: list[tuple[type[BaseModel], JsonSchemaMode]] = [(model, "validation") for model in models]
    _, found = models_json_schema(pairs, ref_template="#/components/schemas/{model}")
    defs: dict[str, Any] = found["$defs"]
    _close(defs)
    return defs


def _close(schema: Any) -> None:
    """Where keys have a pattern, no others are allowed; pydantic enforces that but doesn't write it down."""
    if isinstance(schema, dict):
        if "patternProperties" in schema:
            schema["additionalProperties"] = False
        for part in schema.values():
            _close(part)
    elif isinstance(schema, list):
        for part in schema:
            _close(part)
