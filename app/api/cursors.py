"""Cursors of lists that are in order of names: opaque to clients, the last name of the page to us."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64Error

from app.placement.errors import InvalidFieldError


def cursor_of(name: str | None) -> str | None:
    """The cursor of a page that ends with this name, None where no other follows."""
    return None if name is None else urlsafe_b64encode(name.encode()).decode()


def place_of(cursor: str | None) -> str | None:
    """The name that a cursor stands for. Raises InvalidFieldError."""
    try:
        return None if cursor is None else urlsafe_b64decode(cursor.encode()).decode()
    except (NotBase64Error, UnicodeError):
        raise InvalidFieldError("is not a cursor that this server gave", "/query/cursor") from None
