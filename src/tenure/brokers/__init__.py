"""Brokers: adapters of ``tenure.ports.environment.Broker``, chosen by URL in ``bootstrap``."""
