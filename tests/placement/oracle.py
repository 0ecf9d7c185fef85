"""A second reading of the contract's section 2, slow and literal: a scan per layer, a round per node left out.

It shares no code with the planner but the values that go in.
"""

from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from math import isnan

from app.placement.cost import ModelCost
from app.placement.nodes import Node


class Refused(Exception):  # noqa: N818  # an outcome, not an error of ours
    """The reference's error text."""


@dataclass(frozen=True)
class Stage:
    """What a plan says of one node."""

    node_id: str
    start: int
    end: int
    est_bytes: int
    budget_bytes: int

    @property
    def fits(self) -> bool:
        return self.est_bytes <= self.budget_bytes


def budget(node: Node, reserve: int) -> int:
    """Section 2, Budget."""
    b = node.ram_avail
    if node.config.max_ram_gb is not None:
        b = min(int(node.config.max_ram_gb * 1e9), node.ram_total)
    if node.config.device.split("+")[0] not in {"cpu", "cuda"}:
        sizes = [d.mem_bytes for d in node.devices if d.device != "cpu" and d.mem_bytes]
        vram = max(sizes) if sizes else node.ram_total
        if 0 < vram < node.ram_total:
            b = min(b, int(vram * 0.85))
    return max(0, b - reserve)


def half_away(x: float) -> int:
    """Rust's ``round`` and cast of a non-negative number."""
    return 0 if isnan(x) else int(Decimal(x).quantize(Decimal(1), ROUND_HALF_UP))


def overheads(model: ModelCost, nodes: list[Node]) -> list[int]:
    """The embedding on the first node, the head on the last one."""
    last = len(nodes) - 1
    return [model.embed_bytes * (i == 0) + model.head_bytes * (i == last) for i in range(len(nodes))]


def capacities(model: ModelCost, nodes: list[Node], reserve: int) -> list[int]:
    """Section 2, Capacity."""
    if model.per_layer_bytes == 0:
        return [10**30] * len(nodes)
    rooms = zip(nodes, overheads(model, nodes), strict=True)
    return [max(0, budget(node, reserve) - extra) // model.per_layer_bytes for node, extra in rooms]


def refusal(model: ModelCost, nodes: list[Node], reserve: int) -> str:
    """What is said of nodes that can't hold the model."""
    n = model.n_layers
    size = (n * model.per_layer_bytes + model.embed_bytes + model.head_bytes) / 1e9
    room = sum(min(cap, n) for cap in capacities(model, nodes, reserve))
    return (
        f"model ({n} layers, {size:.1f} GB) does not fit the cluster (capacity {room} layers). "
        "Lower precision, add a node, raise max_ram, or reduce reserve."
    )


def reference(model: ModelCost, nodes: list[Node], policy: str, reserve: int) -> list[Stage]:
    """Section 2, Shares and Manual. Raises Refused."""
    if not nodes:
        raise Refused("no nodes")
    if policy == "manual":
        return staged(model, nodes, reserve, [by_hand(node) for node in nodes])
    n, caps = model.n_layers, capacities(model, nodes, reserve)
    if sum(min(cap, n) for cap in caps) < n:
        raise Refused(refusal(model, nodes, reserve))
    if policy == "ram_balanced":
        weights = [float(budget(node, reserve)) for node in nodes]
    else:
        weights = [max(node.gflops or 0.0, 1.0) * max(model.per_layer_flops, 0.001) for node in nodes]
    total = 0.0
    for weight in weights:
        total = total + weight
    got = [min(cap, half_away(n * w / total) if total else 0) for w, cap in zip(weights, caps, strict=True)]
    while sum(got) < n:
        got[max(range(len(got)), key=lambda i: (caps[i] - got[i], i))] += 1
    while sum(got) > n:
        got[max(range(len(got)), key=lambda i: (got[i], i))] -= 1
    return staged(model, nodes, reserve, [(sum(got[:i]), sum(got[: i + 1])) for i in range(len(got))])


def by_hand(node: Node) -> tuple[int, int]:
    """The node's own range."""
    start, _, end = (node.config.layers or "").partition(":")
    if not (start.isdigit() and end.isdigit() and int(start) <= int(end)):
        raise Refused(f"node {node.addr} has no `layers` for manual policy")
    return int(start), int(end)


def staged(model: ModelCost, nodes: list[Node], reserve: int, ranges: list[tuple[int, int]]) -> list[Stage]:
    """Ranges with their figures."""
    rows = zip(nodes, ranges, overheads(model, nodes), strict=True)
    return [
        Stage(node.node_id, start, end, (end - start) * model.per_layer_bytes + extra, budget(node, reserve))
        for node, (start, end), extra in rows
    ]


def tiles(model: ModelCost, stages: list[Stage]) -> bool:
    """Whether every layer stands in exactly one range, in node order, and no range is empty."""
    layers = [layer for stage in stages for layer in range(stage.start, stage.end)]
    return layers == list(range(model.n_layers)) and all(stage.start < stage.end for stage in stages)


def service(model: ModelCost, nodes: list[Node], policy: str, reserve: int) -> tuple[list[Stage], dict[str, str]]:
    """Section 2, Where the reference breaks its own promise: literally round by round. Raises Refused."""
    if not nodes:
        raise Refused("no nodes")
    left, idle = list(nodes), dict[str, str]()
    while left:
        stages = reference(model, left, policy, reserve)
        over = [i for i, stage in enumerate(stages) if not stage.fits]
        if not over:
            return stages, idle
        for i in over:
            what = ["the embedding"] * (i == 0) + ["the head"] * (i == len(left) - 1)
            idle[left[i].node_id] = "cannot hold " + " and ".join(what)
        left = [node for i, node in enumerate(left) if i not in over]
    raise Refused(refusal(model, nodes, reserve))
