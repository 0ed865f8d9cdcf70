"""The test kit: prove your own store, notifier or worker against the rules Tenure lives by.

    contracts   what every store must do, as pytest classes you subclass
    factories   small builders of runs, updates, claims
    clock       a clock that moves only when told
    plugin      pytest plugin; prints which version of the suite ran

``contracts`` needs ``pip install tenure[testing]``; the rest needs nothing but Tenure.
"""
