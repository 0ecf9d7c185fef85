"""Cleave: which node runs which layers of a model."""

__version__ = "0.2.0"
