"""Answers as aligned text, for people with ``curl`` in a terminal."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from app.placement.units import INT_MAX
from app.schemas.catalog import ModelsOut, NamedModelOut
from app.schemas.deployments import DeploymentOut, DeploymentsOut, ReplanOut
from app.schemas.models import BlockOut, CostOut
from app.schemas.nodes import BeatOut, NodeOut, NodesOut
from app.schemas.plans import PlanOut, PlansOut
from app.schemas.system import LiveOut, ReadyOut, VersionOut

GIB = 2**30

NUMBER = re.compile(r"-|[0-9.]+(e[+-][0-9]+)?( GiB| [TGM])?|unlimited")


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Columns as wide as their widest cell; numbers stand right, words left."""
    cells = [[_cell(value) for value in row] for row in rows]
    numeric = [bool(cells) and all(NUMBER.fullmatch(row[i]) for row in cells) for i in range(len(header))]
    widths = [max(len(row[i]) for row in [list(header), *cells]) for i in range(len(header))]
    lines = (
        "  ".join(c.rjust(w) if right else c.ljust(w) for c, w, right in zip(row, widths, numeric, strict=True))
        for row in [list(header), *cells]
    )
    return "".join(line.rstrip() + "\n" for line in lines)


def gib(size: int | None) -> str:
    """Bytes in GiB (2^30), to a hundredth."""
    if size is None:
        return "-"
    return "unlimited" if size >= INT_MAX else f"{size / GIB:.2f} GiB"


def nodes_text(page: NodesOut) -> str:
    """A page of nodes, one a line."""
    header = ("NODE", "STATE", "ROLE", "ADDR", "DEVICE", "RAM FREE", "RAM", "BUDGET", "LIMIT", "GFLOPS", "LABELS")
    text = table(header, (_node_row(n) for n in page.nodes))
    return text + (f"\nmore: ?cursor={page.next_cursor}\n" if page.next_cursor else "")


def node_text(node: NodeOut) -> str:
    """One node: its line, its devices, its overrides, its warnings."""
    text = nodes_text(NodesOut(nodes=[node], next_cursor=None))
    if node.devices:
        rows = [
            (d.device, d.name, gib(d.mem_bytes), gib(d.mem_avail), d.gflops, d.mem_gbps, "yes" if d.available else "no")
            for d in node.devices
        ]
        text += "\n" + table(("DEVICE", "NAME", "MEMORY", "FREE", "GFLOPS", "GB/S", "AVAILABLE"), rows)
    decided = {k: v for k, v in node.overrides.model_dump().items() if v}
    text += f"\noverrides: {decided}\n" if decided else ""
    return text + f"\nlast seen {_time(node.seen_at)}, expires {_time(node.expires_at)}\n" + _warnings(node.warnings)


def beat_text(beat: BeatOut) -> str:
    """The answer to a beat in a line."""
    return (
        f"{beat.node_id} at {beat.addr}: {beat.state}, budget {gib(beat.budget_bytes)}, beat every "
        f"{beat.heartbeat_interval_s:g} s, expires {_time(beat.expires_at)}, revision {beat.revision}\n"
    ) + _warnings(beat.warnings)


def plan_text(plan: PlanOut) -> str:
    """The stages in pipeline order, then who is idle."""
    model = plan.model
    text = f"plan {plan.plan_id or '(simulated)'}  policy {plan.policy}"
    text += "" if plan.revision is None else f"  revision {plan.revision}"
    name = model.name or "(unnamed)" if model.ref is None else f"{model.ref} version {model.version}"
    text += f"\nmodel {name}: {model.n_layers} layers, {gib(model.total_bytes)}"
    text += f", layers estimated at {plan.summary.precision}" if plan.summary.precision else ""
    text += f"\n{_aim(plan)}\n\n" if plan.policy == "auto" else "\n\n"
    rows = [
        (
            at,
            a.node_id,
            a.addr,
            a.device,
            f"{a.layers.start}:{a.layers.end}",
            a.layers.end - a.layers.start,
            gib(a.est_bytes),
            gib(a.budget_bytes),
            " ".join(["first"] * a.first + ["last"] * a.last + ["OVER BUDGET"] * a.over_budget),
        )
        for at, a in enumerate(plan.assignments)
    ]
    text += table(("STAGE", "NODE", "ADDR", "DEVICE", "LAYERS", "COUNT", "NEEDS", "BUDGET", ""), rows)
    if plan.idle:
        text += "\n" + table(("IDLE", "WHY"), ((i.node_id, i.reason) for i in plan.idle))
    if plan.explain:
        facts = ((f.node_id, gib(f.budget_bytes), f.limit, f.layer_cap, gib(f.headroom_bytes)) for f in plan.explain)
        text += "\n" + table(("NODE", "BUDGET", "LIMIT", "LAYERS FIT", "HEADROOM"), facts)
    return text + _warnings(plan.warnings)


def _aim(plan: PlanOut) -> str:
    """What was made small, how small it is, and what is proven of it."""
    summary, aim = plan.summary, plan.objective.optimize
    unit = "" if aim == "memory" else " s"
    proof = "optimal" if summary.optimal else f"not proven; no plan is below {summary.lower_bound or 0:.6g}{unit}"
    context = "" if summary.max_context is None else f", fits up to a context of {summary.max_context}"
    return (
        f"{aim} {summary.objective_value:.6g}{unit} ({proof}), bottleneck {summary.bottleneck_node}, "
        f"context {plan.objective.context} x {plan.objective.sequences}{context}"
    )


def plans_text(page: PlansOut) -> str:
    """Recent plans, one a line."""
    header = ("PLAN", "CREATED", "REVISION", "POLICY", "MODEL", "LAYERS", "STAGES")
    rows = [(p.plan_id, _time(p.created_at), p.revision, p.policy, p.model, p.n_layers, p.stages) for p in page.plans]
    return table(header, rows) + (f"\nmore: ?cursor={page.next_cursor}\n" if page.next_cursor else "")


def deployments_text(page: DeploymentsOut) -> str:
    """Deployments, one a line."""
    header = ("DEPLOYMENT", "STATE", "GENERATION", "PLAN", "STAGES", "EXPIRES", "WHY")
    rows = [
        (d.name, d.state, d.generation, d.plan_id, d.stages, d.expires_at and _time(d.expires_at), d.reason)
        for d in page.deployments
    ]
    return table(header, rows) + (f"\nmore: ?cursor={page.next_cursor}\n" if page.next_cursor else "")


def deployment_text(made: DeploymentOut) -> str:
    """One deployment: what has become of it, and its plan."""
    text = f"deployment {made.name}: {made.state}, generation {made.generation}"
    text += f", to be confirmed by {_time(made.expires_at)}" if made.expires_at else ""
    text += f" ({made.reason})" if made.reason else ""
    if made.lost:
        rows = [(s.node_id, f"{s.layers.start}:{s.layers.end}", s.reason) for s in made.lost]
        text += "\n\n" + table(("LOST", "LAYERS", "WHY"), rows)
    return text + "\n" + plan_text(made)


def replan_text(made: ReplanOut) -> str:
    """What moves, and the deployment by its new plan."""
    rows = [(f"{m.layers.start}:{m.layers.end}", m.source or "(nobody)", m.target, gib(m.bytes)) for m in made.moves]
    text = table(("MOVE", "FROM", "TO", "WEIGHTS"), rows) if rows else "nothing moves\n"
    return ("not done, only looked at\n" if made.dry_run else "") + text + "\n" + deployment_text(made)


def models_text(page: ModelsOut) -> str:
    """Named models, one a line."""
    header = ("MODEL", "VERSION", "LAYERS", "WEIGHTS", "PARAMETERS", "UPDATED", "SOURCE")
    rows = [
        (m.name, m.version, m.n_layers, gib(m.total_bytes), _count(m.params), _time(m.updated_at), m.source)
        for m in page.models
    ]
    return table(header, rows) + (f"\nmore: ?cursor={page.next_cursor}\n" if page.next_cursor else "")


def model_text(model: NamedModelOut) -> str:
    """A named model's cost."""
    return f"model {model.name} version {model.version}\n" + cost_text(model) + _warnings(model.notes, "note")


def cost_text(cost: CostOut) -> str:
    """A cost: what stands at the ends, then runs of equal layers, figures per layer."""
    text = f"{cost.n_layers} layers, {gib(cost.total_bytes)}, {_count(cost.params)} parameters"
    text += f"\nembedding {gib(cost.embed_bytes)}, head {gib(cost.head_bytes)}"
    text += f", of which they share {gib(cost.tied_bytes)}" if cost.tied_bytes else ""
    rows = [
        (
            f"{start}:{start + block.count}",
            block.count,
            gib(block.bytes),
            gib(block.expert_bytes) if block.expert_bytes else None,
            gib(block.expert_active_bytes) if block.expert_bytes else None,
            block.kv_bytes_per_token,
            block.kv_window,
            block.state_bytes,
            _count(block.flops),
        )
        for start, block in _runs(cost)
    ]
    header = ("LAYERS", "COUNT", "BYTES", "EXPERTS", "ACTIVE", "KV B/TOKEN", "WINDOW", "STATE B", "FLOPS/TOKEN")
    return text + "\n\n" + table(header, rows)


def _runs(cost: CostOut) -> Iterator[tuple[int, BlockOut]]:
    """Each run of equal layers with the layer that it starts at."""
    start = 0
    for block in cost.layers or [_scalar(cost)]:
        yield start, block
        start += block.count


def _scalar(cost: CostOut) -> BlockOut:
    return BlockOut(
        count=cost.n_layers,
        bytes=cost.per_layer_bytes,
        flops=cost.per_layer_flops,
        kv_bytes_per_token=cost.kv_bytes_per_layer_token,
        kv_window=None,
        state_bytes=0,
        expert_bytes=cost.expert_bytes_per_layer,
        expert_active_bytes=cost.expert_active_bytes_per_layer,
        together=False,
    )


def _count(number: float | None) -> str | None:
    """A large number to four digits: ``8.03 G``."""
    if number is None:
        return None
    for unit, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if number >= unit:
            return f"{number / unit:.4g} {letter}"
    return f"{number:g}"


def batch_text(results: Sequence[Mapping[str, Any]]) -> str:
    """A batch's results, one a line."""
    rows = [(r["status"], r.get("node_id"), r.get("state"), r.get("detail")) for r in results]
    return table(("STATUS", "NODE", "STATE", "WHY NOT"), rows)


def status_text(status: LiveOut | ReadyOut) -> str:
    """A probe's answer."""
    checks = status.checks if isinstance(status, ReadyOut) else None
    return status.status + "\n" + ("" if checks is None else table(("CHECK", "RESULT"), checks.items()))


def version_text(version: VersionOut) -> str:
    """The build in a line."""
    return f"{version.name} {version.version} on Python {version.python}\n"


def problem_text(problem: Mapping[str, Any]) -> str:
    """A problem: what and why, then its figures by node or by field."""
    text = f"{problem['status']} {problem['title']}\n{problem['detail']}\n"
    scalars = {k: v for k, v in problem.items() if k not in _STANDARD and isinstance(v, (int, float, str))}
    text += "".join(f"{name}: {value}\n" for name, value in scalars.items())
    for name in ("errors", "nodes", "suggestions"):
        rows = problem.get(name) or []
        if rows and isinstance(rows[0], Mapping):
            text += "\n" + table([key.upper() for key in rows[0]], (list(row.values()) for row in rows))
        elif rows:
            text += f"{name}: {', '.join(rows)}\n"
    if problem.get("excluded"):
        text += "\n" + table(("NODE", "EXCLUDED"), problem["excluded"].items())
    return text + f"\nmore about this: {problem['type']}\n"


_STANDARD = frozenset({"type", "title", "status", "detail"})


def _node_row(n: NodeOut) -> tuple[object, ...]:
    labels = ",".join(f"{key}={value}" for key, value in n.labels.items())
    free, total = gib(n.ram_avail), gib(n.ram_total)
    return (
        n.node_id,
        n.state,
        n.config.role,
        n.addr,
        n.config.device,
        free,
        total,
        gib(n.budget_bytes),
        n.limit,
        n.gflops,
        labels,
    )


def _warnings(warnings: Sequence[str], word: str = "warning") -> str:
    return "".join(f"\n{word}: {warning}" for warning in warnings) + ("\n" if warnings else "")


def _time(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%SZ}"


def _cell(value: object) -> str:
    if value is None or value == "":
        return "-" if value is None else ""
    return f"{value:g}" if isinstance(value, float) else str(value)
