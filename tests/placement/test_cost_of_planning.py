"""How the work grows; ratios within this run, since machines differ."""

from timeit import repeat

from app.placement.planner import place
from tests.placement.build import model, node, task


def best_s(nodes: int, layers: int) -> float:
    """The best of five, where the fastest node has room for one layer and so all others are dealt out one by one."""
    members = [node(f"n{i}", 10_000 + i) for i in range(nodes - 1)]
    asked = task(model(layers, 1), *members, node("fast", 1, gflops=1e12), policy="throughput")
    return min(repeat(lambda: place(asked), number=3, repeat=5))


def test_planning_grows_with_nodes_and_layers_not_with_their_product() -> None:
    """25 x the nodes and 12.5 x the layers: a scan per layer took 80 to 160 x, a heap 20 x."""
    assert best_s(200, 1_000) < 50 * best_s(8, 80)


def test_a_thousand_ends_too_small_are_left_out_in_one_go() -> None:
    """Round by round it would be 500 rounds of 1,000 nodes each."""
    small = [node(f"s{i}", 1) for i in range(1_000)]
    asked = task(model(4, 10, embed=20, head=20), *small[:500], node("big", 500), *small[500:])
    plain = task(model(4, 10), *[node(f"p{i}", 100) for i in range(1_001)])
    took = min(repeat(lambda: place(asked), number=1, repeat=5))
    assert took < 20 * min(repeat(lambda: place(plain), number=1, repeat=5))
