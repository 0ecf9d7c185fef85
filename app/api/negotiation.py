"""JSON for programs, text for terminals: what a client's ``Accept`` asks for."""

import re

from fastapi import Request

WEIGHT = re.compile(r"0(\.[0-9]{0,3})?|1(\.0{0,3})?")
"""RFC 9110, section 12.4.2."""


def prefers_text(request: Request) -> bool:
    """Whether the client would rather read ``text/plain`` than JSON. Without a wish, or with ``*/*``, JSON it is."""
    accept = request.headers.get("accept")
    if not accept or accept == "*/*":
        return False
    return _quality(accept, "text/plain") > max(_quality(accept, "application/json"), _quality(accept, "*/*"))


def prefers_page(request: Request) -> bool:
    """Whether it is a browser that asks."""
    accept = request.headers.get("accept", "")
    return "text/html" in accept and _quality(accept, "text/html") > _quality(accept, "application/json")


def _quality(accept: str, media_type: str) -> float:
    """The weight (RFC 9110) that a media type is named with, 0 where it isn't or the weight makes no sense."""
    for item in accept.split(","):
        name, *parameters = (part.strip().lower() for part in item.split(";"))
        if name == media_type:
            weight = next((p[2:] for p in parameters if p.startswith("q=")), "1")
            return float(weight) if WEIGHT.fullmatch(weight) else 0.0
    return 0.0
