"""Log lines: one per fact, JSON where a program reads them, text in a terminal."""

import logging
import sys
from typing import Literal

import structlog
from structlog.typing import EventDict, WrappedLogger

ALREADY_LOGGED = "Exception in ASGI application"
"""uvicorn says so after the application has logged the same error with its path."""


def configure(log_format: Literal["auto", "json", "text"]) -> None:
    """Send our lines and the libraries' through one formatter, to stderr."""
    as_text = log_format == "text" or (log_format == "auto" and sys.stderr.isatty())
    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _own_exceptions,
    ]
    renderer = (
        structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty()) if as_text else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared, processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer]
    )
    handler.setFormatter(formatter)
    handler.addFilter(lambda record: not str(record.msg).startswith(ALREADY_LOGGED))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.INFO)
    for chatty in ("uvicorn.error", "alembic"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


def _own_exceptions(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """Tracebacks as text in one field."""
    return structlog.processors.format_exc_info(logger, method, event)
