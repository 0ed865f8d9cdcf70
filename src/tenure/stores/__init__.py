"""Adapters of the store ports. Each states its own means; sameness is the contract suite's job.

``document`` and ``lease_clock`` belong to no store: they are for those that others write, too.
"""
