"""``python -m app.cli``, the same as ``cleave``."""

from app.cli import main

main()
