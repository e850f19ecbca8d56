"""Ranks on several hosts: agents that Dask starts, the connections to them, and what the notebook makes of both.

Here: ``dask_hosts`` asks Dask for hosts and starts an agent on each (``start`` runs in the worker); ``hosts`` keeps
them, ``remote_ranks`` lets the supervisor watch ranks, ``run`` is one run. On each host: ``agent`` serves the notebook,
``agent_run`` is its share of a run. Both sides: ``link``, ``clocks``, ``log_copies``, ``addresses``, ``versions``.
``in_ranks`` is the same inside torchrun.
"""
