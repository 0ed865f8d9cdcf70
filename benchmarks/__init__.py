"""Figures, each beside the limit it is measured against in the same run.

Absolute numbers do not travel; ratios do. `make bench` runs all, `make bench ONLY=name` one.
"""
