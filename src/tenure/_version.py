"""The version, in a file of its own so that asking for it costs nothing."""

__version__ = "0.1.0.dev0"
