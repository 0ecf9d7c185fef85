"""Hosts whose memory several nodes share, with figures that a person can check."""

from dataclasses import replace

from app.placement.budgets import Reserve
from app.placement.engines import PLAIN
from app.placement.hosts import crowded
from app.placement.objective import Objective
from app.placement.planner import place
from tests.placement.build import auto, model, node, spans, task


def test_a_host_is_crowded_by_the_byte() -> None:
    """Two stages of 20 bytes on 40, with a reserve of 0 and of 1."""
    plan = place(task(model(4, 10), node("a", 40, host_id="h"), node("b", 40, host_id="h")))
    assert crowded(plan.assignments, Reserve(0, 0), PLAIN) is None
    crowd = crowded(plan.assignments, Reserve(1, 0), PLAIN)
    assert crowd is not None
    assert (crowd.host_id, crowd.room_bytes, crowd.smallest.node_id) == ("h", 39, "b")
    assert [e.excess_bytes for e in crowd.excesses] == [1, 1]


def test_each_host_has_its_own_room() -> None:
    """The first is full to the byte, the second is not crowded, the third is."""
    nodes = [node(f"{host}{at}", 40, host_id=host) for host in "hkl" for at in range(2)]
    plan = place(task(model(12, 10), *nodes))
    small = [a for a in plan.assignments if a.node.host_id != "k"]
    assert crowded(small, Reserve(0, 0), PLAIN) is None
    crowd = crowded(plan.assignments, Reserve(1, 0), PLAIN)
    assert crowd is not None
    assert crowd.host_id == "h"


def test_a_host_too_small_for_a_layer_has_no_part_in_sharing() -> None:
    """Alone the fast nodes would take three layers each; 40 bytes of host h are four, so c has two. Host k has none."""
    nodes = [node(name, 40, gflops=2.0, host_id="h") for name in "ab"] + [node("c", 20, gflops=1.0)]
    nodes += [node(name, 9, host_id="k") for name in "de"]
    plan = place(auto(model(6, 10, flops=1e9), *nodes))
    layers = {who: end - start for who, start, end in spans(plan)}
    assert sum(layers.pop(who, 0) for who in "ab") == 4
    assert layers == {"c": 2}
    assert [(i.node_id, i.reason) for i in plan.idle if i.node_id in "de"] == [
        ("d", "cannot hold a layer"),
        ("e", "cannot hold a layer"),
    ]


def test_slack_is_spent_of_the_best_plan_that_a_host_has_room_for() -> None:
    """Two layers of 4 bytes: one on each node would take half the time, but the host has 4 bytes for both."""
    nodes = [node(name, ram, ram_total=ram, host_id="h", gflops=1.0) for name, ram in (("a", 8), ("b", 4))]
    asked = replace(task(model(2, 4, flops=3e6), *nodes, policy="auto"), objective=Objective(slack=1.0))
    plan = place(asked)
    assert [(a.node.node_id, a.start, a.end) for a in plan.assignments] == [("a", 0, 2)]
    assert plan.proof is not None
    assert (plan.proof.best_value, plan.proof.best_stages) == (0.006, 1)
    assert not plan.proof.optimal
