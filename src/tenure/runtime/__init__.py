"""Executing runs.

engine and schedule (what may start) → executor (one task) → writer (one durable update at a time)
→ group_commit (updates of many runs in one commit) → store. The store is never read to decide what
a run does next; control requests arrive in the answers to a run's own writes, lease renewals and
polls (leases).
"""
