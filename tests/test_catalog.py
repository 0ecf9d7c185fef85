"""Named models: kept once acknowledged, in order of names, within bounds."""

from datetime import UTC, datetime, timedelta
from itertools import count

import pytest

from app import catalog as catalog_module
from app.catalog import Catalog, CatalogFullError
from app.placement.cost import Block, ModelCost
from app.placement.errors import InvalidFieldError
from app.ports import StoreUnavailableError, UnknownModelError
from tests.placement.build import model
from tests.registry.doubles import MemoryJournal

pytestmark = pytest.mark.anyio

START = datetime(2026, 1, 1, tzinfo=UTC)


def at(second: int) -> datetime:
    return START + timedelta(seconds=second)


@pytest.fixture
def journal() -> MemoryJournal:
    return MemoryJournal()


@pytest.fixture
def catalog(journal: MemoryJournal) -> Catalog:
    """A catalog whose clock goes on by a second a look."""
    seconds = count()
    return Catalog(journal, lambda: at(next(seconds)), ())


def restarted(journal: MemoryJournal) -> Catalog:
    return Catalog(journal, lambda: START, journal.crash().models)


async def test_a_name_stands_for_a_cost_until_it_is_given_another(catalog: Catalog) -> None:
    first = await catalog.put("m", model(4))
    assert (first.version, first.created_at, first.updated_at) == (1, at(0), at(0))
    second = await catalog.put("m", model(5))
    assert (second.version, second.created_at, second.updated_at) == (2, at(0), at(1))
    assert catalog.get("m") is second


async def test_the_same_cost_again_changes_nothing(catalog: Catalog) -> None:
    first = await catalog.put("m", model(4))
    assert await catalog.put("m", model(4)) is first


async def test_what_was_acknowledged_survives_a_crash(catalog: Catalog, journal: MemoryJournal) -> None:
    await catalog.put("gone", model(4))
    kept = await catalog.put("kept", model(5))
    await catalog.remove("gone")
    again = restarted(journal)
    assert again.get("kept") == kept
    assert again.find("gone") is None
    assert (await again.put("new", model(1))).version == 4


async def test_nothing_is_acknowledged_while_the_store_fails(catalog: Catalog, journal: MemoryJournal) -> None:
    await catalog.put("m", model(4))
    journal.failing = True
    for _ in range(2):
        with pytest.raises(StoreUnavailableError):
            await catalog.put("m", model(5))
    with pytest.raises(StoreUnavailableError):
        await catalog.remove("m")
    assert restarted(journal).get("m").cost == model(4)


async def test_a_name_that_nobody_gave_is_an_error(catalog: Catalog) -> None:
    with pytest.raises(UnknownModelError, match="PUT /models/m"):
        catalog.get("m")
    with pytest.raises(UnknownModelError):
        await catalog.remove("m")


async def test_figures_that_contradict_each_other_are_refused(catalog: Catalog) -> None:
    with pytest.raises(InvalidFieldError):
        await catalog.put("m", ModelCost(3, 0, 0, 0, layers=(Block(2, 1),)))
    assert catalog.find("m") is None


async def test_pages_are_in_order_of_names_and_show_everybody_once(catalog: Catalog) -> None:
    for name in ("c", "a", "d", "b"):
        await catalog.put(name, model(4))
    page, more = catalog.page(None, 2)
    assert ([m.name for m in page], more) == (["a", "b"], True)
    await catalog.put("aa", model(4))
    await catalog.remove("b")
    page, more = catalog.page("b", 2)
    assert ([m.name for m in page], more) == (["c", "d"], False)


async def test_so_many_models_and_blocks_are_kept_and_no_more(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog_module, "MAX_MODELS", 2)
    monkeypatch.setattr(catalog_module, "MAX_BLOCKS", 3)
    layered = ModelCost(3, 0, 0, 0, layers=(Block(1, 1), Block(2, 2)))
    await catalog.put("a", layered)
    await catalog.put("b", model(4))
    with pytest.raises(CatalogFullError):
        await catalog.put("c", model(4))
    with pytest.raises(CatalogFullError):
        await catalog.put("b", layered)
    assert catalog.get("b").cost == model(4)
    await catalog.put("a", ModelCost(6, 0, 0, 0, layers=(Block(1, 1), Block(2, 2), Block(3, 1))))
    await catalog.remove("b")
    await catalog.put("c", model(4))
