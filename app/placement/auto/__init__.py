"""Policy ``auto``: the best plan, and what is proven of it. ``docs/planner.md`` has the argument."""
