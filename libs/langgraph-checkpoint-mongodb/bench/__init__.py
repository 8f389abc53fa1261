"""Measure the savers of this package beside their peers: run ``python -m bench``.

The driver (``__main__``, ``run``, ``report``, ``plots``) runs in the project's environment. Each
peer runs in an environment of its own, in a process started from ``_worker_entry.py``; what is
imported there (``worker``, ``peers``, ``faces``, ``meter``, ``threads``, ``workloads``) uses the
standard library, LangGraph and the peer alone.
"""
