"""A planned step, run: a transformer's step in any layout of the planner, and what its model was off.

``pieces`` are the cut layers, ``program`` is the step that ranks run, ``verify`` runs it on the virtual cluster and
compares.
"""
