"""What happens while a run executes.

engine (what may start) → executor (one task) → engine → tracker (one durable update at a time) →
combiner (the updates of many runs in one commit) → store. Nothing here reads the store to decide
what a run does next; control reaches a run only in the answers to its own writes, renewals and
control polls (keeper, rounds).
"""
