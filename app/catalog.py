"""Named models: what they cost, kept under a name for plans to refer to.

Memory is the truth and the journal follows, as in the registry: a change is acknowledged once it is durable.
"""

from bisect import bisect_right, insort
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime

from app.placement.cost import ModelCost, check_cost
from app.placement.errors import CleaveError
from app.ports import Journal, ModelRecord, UnknownModelError

MAX_MODELS = 1_000
MAX_BLOCKS = 200_000
"""Of all models together: a block takes about 250 bytes of memory, so about 50 MB."""


@dataclass(eq=False)
class CatalogFullError(CleaveError):
    """As many models are named as the server keeps."""

    max_models: int = MAX_MODELS
    max_blocks: int = MAX_BLOCKS
    detail: str = field(init=False)

    def __post_init__(self) -> None:
        """The bounds."""
        self.detail = f"the server keeps {self.max_models} models of {self.max_blocks} blocks together; delete some"


class Catalog:
    """The models of one server, by name."""

    def __init__(self, journal: Journal, now: Callable[[], datetime], stored: Iterable[ModelRecord]) -> None:
        """Take over what was stored."""
        self._journal = journal
        self._now = now
        self._models = {record.name: record for record in stored}
        self._names = sorted(self._models)

    def get(self, name: str) -> ModelRecord:
        """One model. Raises UnknownModelError."""
        try:
            return self._models[name]
        except KeyError:
            raise UnknownModelError(name) from None

    def find(self, name: str) -> ModelRecord | None:
        """One model, None where there is none of that name."""
        return self._models.get(name)

    async def put(self, name: str, cost: ModelCost) -> ModelRecord:
        """Name a cost, or give the name another; durable when it returns. The same cost again changes nothing.

        Raises InvalidFieldError, CatalogFullError, StoreUnavailableError.
        """
        check_cost(cost, "")
        record = self._models.get(name)
        if record is None or record.cost != cost:
            record = self._replaced(name, cost, record)
        await self._journal.durable(record.version)
        return record

    async def remove(self, name: str) -> None:
        """Forget a model; durable when it returns. Raises UnknownModelError, StoreUnavailableError."""
        self.get(name)
        del self._models[name]
        del self._names[bisect_right(self._names, name) - 1]
        revision = self._journal.advance()
        self._journal.note("model", name, None, urgent=True)
        await self._journal.durable(revision)

    def page(self, after: str | None, limit: int) -> tuple[list[ModelRecord], bool]:
        """Up to ``limit`` models behind the name ``after``, in order of names, and whether there are more.

        A model that is there all the while is seen exactly once, whatever comes and goes between two pages.
        """
        start = 0 if after is None else bisect_right(self._names, after)
        names = self._names[start : start + limit]
        return [self._models[name] for name in names], start + limit < len(self._names)

    def _replaced(self, name: str, cost: ModelCost, old: ModelRecord | None) -> ModelRecord:
        blocks = sum(len(r.cost.layers) for r in self._models.values() if r is not old) + len(cost.layers)
        if blocks > MAX_BLOCKS or (old is None and len(self._models) >= MAX_MODELS):
            raise CatalogFullError
        now = self._now()
        record = ModelRecord(name, cost, self._journal.advance(), now if old is None else old.created_at, now)
        if old is None:
            insort(self._names, name)
        self._models[name] = record
        self._journal.note("model", name, record, urgent=True)
        return record
