"""Small tasks for the property tests. Small numbers, since an off-by-one hides behind 2^40."""

from hypothesis import strategies as st

from app.placement.budgets import Reserve
from app.placement.cost import Block, ModelCost
from app.placement.engines import PLAIN, Engine, engine
from app.placement.nodes import Device, Node
from app.placement.objective import Objective
from app.placement.task import Task

few = st.integers(0, 3)
speeds = st.sampled_from([0.0, 1.0, 1.0, 2.0, 3.0, 5.0])


@st.composite
def nodes(draw: st.DrawFn, *, experts: bool, hosts: bool, most: int) -> tuple[Node, ...]:
    """One node and more, some alike."""
    found = []
    for at in range(draw(st.integers(1, most))):
        ram = draw(st.integers(0, 30))
        bandwidth = draw(st.sampled_from([None, None, 1e-6, 2e-6, 4e-6, 1e-2]))
        found.append(
            Node(
                node_id=f"n{at}",
                addr=f"n{at}",
                ram_total=max(1, ram),
                ram_avail=ram,
                gflops=draw(speeds),
                io_mbps=draw(st.sampled_from([None, 1.0, 3.0])) if experts else None,
                disk_free=draw(st.sampled_from([None, 0, 5, 12, 40])) if experts else None,
                devices=() if bandwidth is None else (Device("cpu", mem_gbps=bandwidth),),
                host_id=draw(st.sampled_from([None, "h", "k"])) if hosts else None,
            )
        )
    return tuple(found)


@st.composite
def blocks(draw: st.DrawFn, n_layers: int, *, experts: bool) -> tuple[Block, ...]:
    """Runs of layers that add up."""
    found, left = [], n_layers
    while left:
        count = draw(st.integers(1, left))
        held = draw(few) if experts else 0
        found.append(
            Block(
                count,
                draw(few),
                float(draw(few)) * 1e6,
                draw(st.integers(0, 1)),
                draw(st.sampled_from([None, 1, 2])),
                draw(st.integers(0, 1)),
                held,
                draw(st.integers(0, 2)),
                draw(st.booleans()),
            )
        )
        left -= count
    return tuple(found)


@st.composite
def models(draw: st.DrawFn, *, layered: bool, experts: bool, most: int) -> ModelCost:
    """One layer and more."""
    n_layers = draw(st.integers(1, most))
    tied = draw(st.booleans())
    return ModelCost(
        n_layers,
        draw(few),
        draw(few),
        draw(few),
        float(draw(few)) * 1e6,
        layers=draw(blocks(n_layers, experts=experts)) if layered else (),
        kv_bytes_per_layer_token=draw(st.integers(0, 1)),
        expert_bytes_per_layer=draw(few) if experts else 0,
        expert_active_bytes_per_layer=draw(st.integers(0, 2)),
        head_flops=float(draw(few)) * 1e6,
        tied_embeddings=tied,
        tied_bytes=draw(st.sampled_from([None, 1])) if tied else None,
    )


def engines() -> st.SearchStrategy[Engine]:
    """Each engine, small enough for small numbers."""
    small = {"overhead_bytes": 1}
    return st.sampled_from(
        [
            PLAIN,
            PLAIN,
            engine("rlx", small),
            engine("vllm", {"overhead_bytes": 1, "max_batched_tokens": 3}),
            engine("llama.cpp", {"overhead_bytes": 0, "kv_pad": 2, "n_ubatch": 1}),
            engine("llama.cpp", {"overhead_bytes": 1, "kv_pad": 2, "n_ubatch": 1, "kv_unified": False}),
        ]
    )


@st.composite
def tasks(  # what a test varies
    draw: st.DrawFn,
    *,
    optimize: str,
    order: str,
    layered: bool,
    experts: bool = False,
    hosts: bool = False,
    most_nodes: int = 4,
    most_layers: int = 6,
) -> Task:
    """A task of one objective, order and kind of model; everything else is drawn."""
    who = draw(nodes(experts=experts, hosts=hosts, most=most_nodes))
    pins = st.sampled_from([None, None, None, *(n.node_id for n in who)])
    return Task(
        model=draw(models(layered=layered, experts=experts, most=most_layers)),
        nodes=who,
        policy="auto",
        reserve=Reserve(draw(st.integers(0, 1)), 0),
        engine=draw(engines()),
        objective=Objective(
            optimize=optimize,
            context=draw(st.integers(0, 3)),
            sequences=draw(st.integers(1, 2)),
            hop_s=draw(st.sampled_from([0.0, 0.0005, 0.002])),
            order=order,
            max_stages=draw(st.sampled_from([None, None, 1, 2, 3])),
            stage_counts=draw(st.sampled_from([(), (), (2,), (1, 3), (3,)])),
            first_node=draw(pins),
            last_node=draw(pins),
        ),
    )
