"""How many layers a refused request could have held in given order, against trying every number of layers."""

import os
from dataclasses import replace

from hypothesis import given as over
from hypothesis import settings
from hypothesis import strategies as st

from app.placement.auto import given, refusal
from tests.placement.drawn import tasks
from tests.placement.test_search import problem_for


@over(st.data())
@settings(max_examples=int(os.environ.get("EXAMPLES", "200")), deadline=None)
def test_the_sweep_counts_as_many_layers_as_trying_every_number(data: st.DataObject) -> None:
    task = data.draw(tasks(optimize="throughput", order="given", layered=True, experts=data.draw(st.booleans())))
    free = replace(task.objective, max_stages=None, stage_counts=())
    problem = problem_for(replace(task, objective=free))
    if not problem.any_count or refusal.fits(problem):
        return
    tried = range(problem.stack.n_layers - 1, 0, -1)
    most = next((m for m in tried if refusal.fits(refusal.first_layers(problem, m))), 0)
    assert given.capacity(problem) == most
