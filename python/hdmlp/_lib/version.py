"""The version of the package and of the daemon that it carries."""

__version__ = "0.2.0"
