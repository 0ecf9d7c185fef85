"""Where a model's layers go: pure decisions on plain values.

Nothing in this package reads a clock, draws a random number, logs, or knows HTTP or a database.
"""
