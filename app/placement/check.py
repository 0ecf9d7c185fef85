"""An independent reading of a finished plan: the gate before an answer, and an oracle for tests."""

from collections.abc import Iterator

from app.placement.plans import Assignment, Placement


def violations(placement: Placement, *, allow_over_budget: bool = False) -> tuple[str, ...]:
    """What the plan promises and doesn't keep, in words; empty for a sound plan. O(n).

    A plan that was allowed to exceed budgets is the reference's verbatim: only its figures are checked then.
    """
    found = list(_wrong_figures(placement))
    if not allow_over_budget:
        found += _untiled(placement)
        found += [f"{a.node.node_id} is over its budget" for a in placement.assignments if a.over_budget]
    return tuple(found)


def _wrong_figures(placement: Placement) -> Iterator[str]:
    model, stages = placement.model, placement.assignments
    ids = [a.node.node_id for a in stages] + [i.node_id for i in placement.idle]
    if len(set(ids)) != len(ids):
        yield "a node stands twice in the plan"
    for at, a in enumerate(stages):
        if (a.first, a.last) != (at == 0, at == len(stages) - 1):
            yield f"{a.node.node_id} is not marked as the end that it is"
        if a.est_bytes != _bytes_from_scratch(placement, a):
            yield f"{a.node.node_id} has a wrong estimate"
    if not stages or model.n_layers < 1:
        yield "there is nothing to run"


def _bytes_from_scratch(placement: Placement, stage: Assignment) -> int:
    """By adding up layer by layer where the planner multiplies."""
    model = placement.model
    total = sum(model.per_layer_bytes for _ in range(stage.start, stage.end))
    total += model.embed_bytes if stage is placement.assignments[0] else 0
    return total + (model.head_bytes if stage is placement.assignments[-1] else 0)


def _untiled(placement: Placement) -> Iterator[str]:
    at = 0
    for a in placement.assignments:
        if a.start != at or a.end < a.start:
            yield f"{a.node.node_id} does not continue at layer {at}"
        at = a.end
    if at != placement.model.n_layers:
        yield f"the plan ends at layer {at} of {placement.model.n_layers}"
