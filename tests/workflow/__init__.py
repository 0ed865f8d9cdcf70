"""These tests call the parser, the evaluator and the planner themselves: each of the many mistakes
that a file may hold would be a command. What a person sees is in ``tests/cli/test_validate.py``."""
