"""A second reading of the contract's section 2, slow and literal: a scan per layer, a round per node left out.

It shares no code with the planner but the values that go in.
"""

from decimal import ROUND_HALF_UP, Decimal
from math import isnan
from typing import Any

from app.placement.cost import ModelCost
from app.placement.nodes import Node


class Refused(Exception):  # noqa: N818  # an outcome, not an error of ours
    """The reference's error text."""


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


def reference(model: ModelCost, nodes: list[Node], policy: str, reserve: int) -> list[dict[str, Any]]:
    """Section 2, Capacity and Shares. Raises Refused."""
    if not nodes:
        raise Refused("no nodes")
    n, last = model.n_layers, len(nodes) - 1
    budgets = [budget(x, reserve) for x in nodes]
    extra = [model.embed_bytes * (i == 0) + model.head_bytes * (i == last) for i in range(len(nodes))]
    huge = 10**30
    caps = [
        max(0, b - e) // model.per_layer_bytes if model.per_layer_bytes else huge
        for b, e in zip(budgets, extra, strict=True)
    ]
    room = sum(min(c, n) for c in caps)
    if room < n:
        size = (n * model.per_layer_bytes + model.embed_bytes + model.head_bytes) / 1e9
        raise Refused(
            f"model ({n} layers, {size:.1f} GB) does not fit the cluster (capacity {room} layers). "
            "Lower precision, add a node, raise max_ram, or reduce reserve."
        )
    if policy == "ram_balanced":
        weights = [float(b) for b in budgets]
    else:
        weights = [max(x.gflops or 0.0, 1.0) * max(model.per_layer_flops, 0.001) for x in nodes]
    total = 0.0
    for w in weights:
        total = total + w
    got = [min(c, half_away(n * w / total) if total else 0) for w, c in zip(weights, caps, strict=True)]
    while sum(got) < n:
        best = max(range(len(got)), key=lambda i: (caps[i] - got[i], i))
        got[best] += 1
    while sum(got) > n:
        best = max(range(len(got)), key=lambda i: (got[i], i))
        got[best] -= 1
    stages, at = [], 0
    for i, x in enumerate(nodes):
        est = got[i] * model.per_layer_bytes + extra[i]
        stages.append({"node": x.node_id, "start": at, "end": at + got[i], "est": est, "budget": budgets[i]})
        at += got[i]
    return stages


def service(
    model: ModelCost, nodes: list[Node], policy: str, reserve: int
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Section 2, Where the reference breaks its own promise: literally round by round. Raises Refused."""
    left = list(nodes)
    idle: dict[str, str] = {}
    first_text = None
    while left:
        stages = reference(model, left, policy, reserve)
        first_text = first_text or text_of_capacity(model, left, reserve)
        over = [i for i, s in enumerate(stages) if s["est"] > s["budget"]]
        if not over:
            return stages, idle
        for i in over:
            what = ["the embedding"] * (i == 0) + ["the head"] * (i == len(left) - 1)
            idle[left[i].node_id] = "cannot hold " + " and ".join(what)
        left = [x for i, x in enumerate(left) if i not in over]
    raise Refused(first_text or "no nodes")


def text_of_capacity(model: ModelCost, nodes: list[Node], reserve: int) -> str:
    """The refusal that would have been said of these nodes, had they been refused."""
    n, last = model.n_layers, len(nodes) - 1
    room = 0
    for i, x in enumerate(nodes):
        extra = model.embed_bytes * (i == 0) + model.head_bytes * (i == last)
        cap = max(0, budget(x, reserve) - extra) // model.per_layer_bytes if model.per_layer_bytes else n
        room += min(cap, n)
    size = (n * model.per_layer_bytes + model.embed_bytes + model.head_bytes) / 1e9
    return (
        f"model ({n} layers, {size:.1f} GB) does not fit the cluster (capacity {room} layers). "
        "Lower precision, add a node, raise max_ram, or reduce reserve."
    )
