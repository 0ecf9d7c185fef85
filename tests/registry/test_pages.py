"""Lists page by page, while nodes come and go."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.placement.build import node
from tests.registry.doubles import World

pytestmark = pytest.mark.anyio


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 30), unique=True, max_size=20),
    st.integers(1, 4),
    st.lists(st.tuples(st.booleans(), st.integers(0, 30)), max_size=15),
)
async def test_pages_show_who_is_there_all_the_while_exactly_once(
    there: list[int], limit: int, churn: list[tuple[bool, int]]
) -> None:
    world = World()
    for number in there:
        await world.registry.register(node(f"n{number:02}"))
    stable = {f"n{number:02}" for number in there} - {f"n{number:02}" for _, number in churn}
    seen: list[str] = []
    after, events = None, list(churn)
    while True:
        page = world.registry.page(after, limit, lambda *_: True)
        seen += [view.node.node_id for view in page.nodes]
        after = page.next_after
        if after is None:
            break
        for come, number in [events.pop()] if events else []:
            name = f"n{number:02}"
            if come:
                await world.registry.register(node(name))
            elif name in {s.node.node_id for s in world.registry.fleet().standings}:
                await world.registry.remove(name)
    assert len(seen) == len(set(seen))
    assert stable <= set(seen)
    assert seen == sorted(seen)


async def test_a_page_holds_only_who_is_wanted() -> None:
    world = World()
    for name in "abcd":
        await world.registry.register(node(name))
    page = world.registry.page(None, 1, lambda n, state: n.node_id in "bd" and state == "ready")
    assert [v.node.node_id for v in page.nodes] == ["b"]
    assert world.registry.page(page.next_after, 1, lambda n, _: n.node_id in "bd").next_after is None
