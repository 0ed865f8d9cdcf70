"""Adapters of the store ports; the contract suite checks that they behave alike.

``document`` and ``lease_clock`` are also for stores outside this package.
"""
