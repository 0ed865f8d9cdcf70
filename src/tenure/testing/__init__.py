"""The test kit: check your own store, notifier or worker.

    contracts   the duties of a store, as pytest classes to subclass
    factories   builders of runs, updates, claims
    clock       a clock set by the test
    plugin      pytest plugin; prints the version of the suite

``contracts`` needs ``pip install tenure[testing]``; the rest needs nothing but Tenure.
"""
