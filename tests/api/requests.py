"""Requests with round figures."""

from typing import Any

GIB = 2**30


def report(name: str, gib: float = 20, **given: Any) -> dict[str, Any]:
    """A node with so many GiB free of twice as many."""
    return {
        "node_id": name,
        "addr": f"{name}:9100",
        "ram_total": int(2 * gib * GIB),
        "ram_avail": int(gib * GIB),
        "gflops": 1000.0,
        **given,
    }


def model(layers: int = 10, layer_gib: float = 1, **given: Any) -> dict[str, Any]:
    """Layers of so many GiB between tables that weigh nothing."""
    return {
        "n_layers": layers,
        "per_layer_bytes": int(layer_gib * GIB),
        "embed_bytes": 0,
        "head_bytes": 0,
        **given,
    }


def ask(**given: Any) -> dict[str, Any]:
    """A plan request without a reserve."""
    return {"model": model(), "reserve_bytes": 0, **given}
