"""Anubis keeps a GPU cluster fit for work."""

__version__ = "0.1.0"
