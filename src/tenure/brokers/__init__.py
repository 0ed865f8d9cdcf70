"""Brokers: adapters of ``tenure.ports.broker``, chosen by URL in ``tenure.bootstrap``."""
