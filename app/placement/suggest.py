"""What would make a refused request fit: each suggestion is planned before it is made."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from app.placement.budgets import Reserve
from app.placement.errors import InvalidFieldError, NoNodesError, Suggestion
from app.placement.nodes import Node, NodeConfig
from app.placement.planner import can_place
from app.placement.precision import at_precision, narrower
from app.placement.stages import stack_of
from app.placement.task import Task
from app.placement.units import GB, INT_MAX

PLANS = 120
"""Plans that suggestions may cost at most."""

WORK = 30_000
"""What they may cost together, in units of a node in a plan of equal layers (about 30 us), so that a refusal with its
suggestions stays within two seconds of a core."""

EXACT_NODES = 14
"""Up to so many nodes, layers that differ are tried in every order: 2^n sets of n nodes, a 14th of a unit each."""


class Fitting:
    """Whether tasks fit, as long as the budget of plans lasts; after that nothing does."""

    def __init__(self, plans: int) -> None:
        """``plans`` is a count, so that a run repeats exactly."""
        self.left = plans

    def __call__(self, task: Task) -> bool:
        """Whether the task can be planned."""
        if self.left <= 0:
            return False
        self.left -= 1
        try:
            return can_place(task)
        except (NoNodesError, InvalidFieldError):
            return False


def affordable_plans(task: Task) -> int:
    """How many plans suggestions may try for this task: a count, so that a run repeats exactly."""
    nodes = len(task.nodes)
    work = nodes
    if not task.model.uniform and task.objective.order == "any" and nodes <= EXACT_NODES:
        work = max(nodes, 2**nodes * nodes // 14)
    return min(PLANS, WORK // max(1, work))


def suggestions(task: Task, plans: int | None = None) -> tuple[Suggestion, ...]:
    """The largest context, sequences, reserve and precision that fit, and the smallest extra node that would do.

    Numbers by halving, as far as ``plans`` last (by default as many as the task's size affords); what is suggested has
    been planned.
    """
    fits = Fitting(affordable_plans(task) if plans is None else plans)
    ways = (_context, _sequences, _precision, _reserve, _node)
    return tuple(found for suggest in ways for found in suggest(task, fits))


def _context(task: Task, fits: Fitting) -> Iterator[Suggestion]:
    if any(block.kv_bytes_per_token for block in task.model.blocks):
        best = _most(task.objective.context, lambda n: fits(_with(task, context=n)))
        if best is not None:
            yield Suggestion("objective.context", best, f"a context of {best} tokens fits")


def _sequences(task: Task, fits: Fitting) -> Iterator[Suggestion]:
    if task.objective.sequences > 1:
        best = _most(task.objective.sequences, lambda n: n > 0 and fits(_with(task, sequences=n)))
        if best:
            yield Suggestion("objective.sequences", best, f"{best} sequences at a time fit")


def _precision(task: Task, fits: Fitting) -> Iterator[Suggestion]:
    """The widest precision below what the layers are stored at now."""
    for name in narrower(task.model):
        if fits(replace(task, model=at_precision(task.model, name))):
            yield Suggestion("objective.precision_ladder", name, f"layers in {name} fit, by an estimate from params")
            return


def _reserve(task: Task, fits: Fitting) -> Iterator[Suggestion]:
    asked = task.reserve.default_bytes if task.reserve.asked_bytes is None else task.reserve.asked_bytes
    if asked:
        best = _most(asked, lambda n: fits(replace(task, reserve=Reserve(n, n))))
        if best is not None:
            yield Suggestion("reserve_bytes", best, f"a reserve of {_said(best)} on each node leaves enough")


def _node(task: Task, fits: Fitting) -> Iterator[Suggestion]:
    """A CPU node at the end of the list, with the reserve on top of what it offers."""
    stack = stack_of(task.model, task.engine, task.objective.context, task.objective.sequences)
    whole = stack.required_bytes() + stack.overhead + stack.shared
    reserve = task.reserve.default_bytes if task.reserve.asked_bytes is None else task.reserve.asked_bytes
    if task.policy == "manual" or whole + reserve > INT_MAX:
        return

    def helps(spare: int) -> bool:
        ram = whole - spare + reserve
        extra = Node("extra-node", "extra-node", max(1, ram), max(0, ram), config=NodeConfig())
        return fits(replace(task, nodes=(*task.nodes, extra)))

    spare = _most(whole, helps)
    if spare is not None and spare < whole:
        size = whole - spare
        yield Suggestion("nodes", size, f"one more node with {_said(size)} beside its reserve would do")


def _said(size: int) -> str:
    return f"{size} bytes ({size / GB:.1f} GB)"


def _with(task: Task, **changes: int) -> Task:
    return replace(task, objective=replace(task.objective, **changes))  # type: ignore[arg-type]  # context or sequences


def _most(beyond: int, holds: Callable[[int], bool]) -> int | None:
    """The largest number below ``beyond`` that holds, by halving; None where neither 0 nor 1 does."""
    if not holds(0):
        return None if beyond <= 1 or not holds(1) else _between(1, beyond, holds)
    return _between(0, beyond, holds)


def _between(low: int, high: int, holds: Callable[[int], bool]) -> int:
    while low < high - 1:
        middle = (low + high) >> 1
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
