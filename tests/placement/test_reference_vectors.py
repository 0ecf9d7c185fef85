"""All 1,502 results of the reference planner, through the pure function."""

from pathlib import Path
from typing import Any

from app.placement.check import violations
from app.placement.errors import CleaveError
from app.placement.planner import place
from tests.placement import vectors


def outcome(request: dict[str, Any]) -> dict[str, Any]:
    """What the planner says, in the vectors' own words."""
    try:
        placed = place(vectors.to_task(request, allow_over_budget=True))
    except CleaveError as error:
        return {"error": str(error)}
    assignments = [
        {
            "addr": a.node.addr,
            "layers": {"start": a.start, "end": a.end},
            "first": a.first,
            "last": a.last,
            "est_bytes": a.est_bytes,
            "budget_bytes": a.budget_bytes,
            "device": a.node.primary_device,
        }
        for a in placed.assignments
    ]
    return {"assignments": assignments, "fits": not any(a.over_budget for a in placed.assignments)}


def test_every_vector_is_reproduced_exactly_error_texts_included(shared: Path) -> None:
    rows = list(vectors.read(shared / "vectors/reference.jsonl.gz"))
    assert len(rows) == 1_502
    assert [r["id"] for r in rows if outcome(r["request"]) != r["expect"]] == []


def test_without_leave_no_vector_s_plan_breaks_a_promise(shared: Path) -> None:
    planned = 0
    for row in vectors.read(shared / "vectors/reference.jsonl.gz"):
        task = vectors.to_task(row["request"], allow_over_budget=False)
        try:
            placed = place(task)
        except CleaveError:
            continue
        planned += 1
        assert violations(placed) == (), row["id"]
        assert all(a.est_bytes <= a.budget_bytes for a in placed.assignments)
        layers = [i for a in placed.assignments for i in range(a.start, a.end)]
        assert layers == list(range(task.model.n_layers))
    assert planned > 900
