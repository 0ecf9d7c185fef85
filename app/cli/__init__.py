"""The command ``cleave``: arguments in, one call, text out."""

from app.cli.commands import main

__all__ = ["main"]
