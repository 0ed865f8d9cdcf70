"""Adapters of the store ports. Each states its own means; sameness is the contract suite's job."""
