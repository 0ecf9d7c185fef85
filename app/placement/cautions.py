"""What a plan can't know, or was told in vain: said beside it, so that nobody takes a guess for a measurement."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from app.placement.objective import Objective
from app.placement.plans import Assignment
from app.placement.stages import Worker
from app.placement.task import Task

NAMED = 5
"""So many nodes are named; a plan may have thousands."""


def cautions(task: Task, workers: Sequence[Worker], assignments: Sequence[Assignment]) -> tuple[str, ...]:
    """Warnings about the figures that decided the plan. O(n)."""
    if task.policy == "auto":
        return tuple(_of_auto(task, workers, assignments))
    return tuple(_unused(task.objective))


def _of_auto(task: Task, workers: Sequence[Worker], assignments: Sequence[Assignment]) -> Iterator[str]:
    """Times that are none: without FLOPs, or of nodes that only some say how fast their memory is."""
    if (task.objective.optimize or task.engine.optimize) == "memory":
        return
    if all(block.flops <= 1 for block in task.model.blocks):
        yield (
            "the model's FLOPs are not given (per_layer_flops): its stage times are those of memory alone, as far as "
            "the nodes report mem_gbps"
        )
    slow = {w.node.node_id for w in workers if w.reads_at_once}
    used = [a.node.node_id for a in assignments if a.node.node_id in slow]
    if used and len(slow) < len(workers):
        named = ", ".join(used[:NAMED]) + (f" and {len(used) - NAMED} more" if len(used) > NAMED else "")
        yield f"{named}: mem_gbps is not reported, so reading weights counts nothing there; decoding is mostly that"


def _unused(objective: Objective) -> Iterator[str]:
    """Fields of the objective that only ``auto`` goes by."""
    plain = Objective(context=objective.context, sequences=objective.sequences, hop_s=objective.hop_s)
    if objective != plain:
        names = [name for name in FIELDS if replace(plain, **{name: getattr(objective, name)}) != plain]
        yield f"objective.{', objective.'.join(names)}: only policy auto goes by it"


FIELDS = ("optimize", "order", "max_stages", "stage_counts", "first_node", "last_node", "slack")
