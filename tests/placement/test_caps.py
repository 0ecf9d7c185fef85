"""How many layers a node can hold, with figures that a person can check, and against every run of layers."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from app.placement.budgets import Budget
from app.placement.caps import Caps
from app.placement.cost import Block, ModelCost
from app.placement.engines import engine
from app.placement.stages import Stack, Worker, stack_of, worker_of
from tests.placement.build import model, node

PLAIN = engine("plain", {})


def holder(room: int, disk: int = -1) -> Worker:
    """A worker of so many bytes of budget, and so many for paged experts; -1 where nothing is known of its disk."""
    empty = worker_of(node("a"), Budget(room, "override"), PLAIN)
    return empty._replace(disk_bytes=disk)


def test_nobody_holds_a_layer_without_room_for_what_the_engine_adds() -> None:
    caps = Caps(stack_of(model(4, 10), engine("plain", {"overhead_bytes": 7}), 0, 1))
    assert [caps.of(holder(room)) for room in (6, 7, 16, 17, 46, 99)] == [0, 0, 0, 1, 3, 4]


def test_layers_without_bytes_fit_wherever_the_engine_does() -> None:
    caps = Caps(stack_of(model(4, 0), engine("plain", {"overhead_bytes": 7}), 0, 1))
    assert [caps.of(holder(room)) for room in (6, 7)] == [0, 4]


def test_a_cap_counts_layers_whose_experts_fit_the_disk() -> None:
    """6 bytes hold one layer of 2 + 4, or three of 2 with 12 bytes of experts on disk."""
    caps = Caps(stack_of(ModelCost(4, 2, 0, 0, expert_bytes_per_layer=4), PLAIN, 0, 1))
    assert [caps.of(holder(6, disk)) for disk in (-1, 7, 8, 11, 12, 99)] == [1, 1, 2, 2, 3, 3]


def test_the_lightest_run_counts_not_the_first() -> None:
    """Layers of 9, 1, 1 and 9 bytes: 2 bytes hold the two in the middle."""
    stack = stack_of(ModelCost(4, 0, 0, 0, layers=tuple(Block(1, size) for size in (9, 1, 1, 9))), PLAIN, 0, 1)
    assert [Caps(stack).of(holder(room)) for room in (0, 1, 2, 10, 11, 20)] == [0, 1, 2, 2, 3, 4]


def test_layers_that_stay_together_count_all_or_not_at_all() -> None:
    """Two layers of 1 byte that stay together, and one of 5: 1 byte holds nothing, 2 hold both, 7 all."""
    stack = stack_of(ModelCost(3, 0, 0, 0, layers=(Block(2, 1, together=True), Block(1, 5))), PLAIN, 0, 1)
    assert [Caps(stack).of(holder(room)) for room in (1, 2, 5, 6, 7)] == [0, 2, 2, 2, 3]


BLOCKS = st.lists(
    st.builds(
        Block,
        count=st.integers(1, 3),
        bytes=st.integers(0, 9),
        expert_bytes=st.integers(0, 9),
        together=st.booleans(),
    ),
    min_size=1,
    max_size=5,
)


@given(BLOCKS, st.lists(st.tuples(st.integers(0, 60), st.integers(-1, 60)), min_size=1, max_size=6))
def test_a_cap_is_the_longest_run_that_fits(blocks: list[Block], asked: list[tuple[int, int]]) -> None:
    stack = stack_of(
        ModelCost(sum(b.count for b in blocks), 0, 0, 0, layers=tuple(blocks)), replace(PLAIN, overhead_bytes=3), 0, 1
    )
    caps = Caps(stack)
    for room, disk in asked:
        assert caps.of(holder(room, disk)) == longest(stack, room, disk)


def longest(stack: Stack, room: int, disk: int) -> int:
    """By trying every run of layers between two cuts."""
    best, cuts = 0, stack.cuts()
    for start in cuts:
        for end in cuts:
            held = stack.sums(start, end)
            bare = held.weights + held.cache + stack.overhead
            if bare <= room and (bare + held.experts <= room or held.experts <= disk):
                best = max(best, end - start)
    return best
