"""The registry: which nodes there are, what they say of themselves, and who is alive."""

from app.registry.errors import NodeConflictError, RegistryFullError
from app.registry.liveness import Rules
from app.registry.members import NodeView
from app.registry.service import Page, Registry

__all__ = [
    "NodeConflictError",
    "NodeView",
    "Page",
    "Registry",
    "RegistryFullError",
    "Rules",
]
