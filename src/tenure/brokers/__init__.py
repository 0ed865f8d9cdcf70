"""Brokers: adapters of ``tenure.ports.environment``, chosen by URL in ``tenure.bootstrap``."""
