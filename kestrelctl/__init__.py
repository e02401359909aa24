"""Kestrel: a pool for many short tasks on machines that come and go."""

#: A wheel and a source archive have more in its place: see `kestrelctl.checkout`.
__version__ = "0.2.0.dev0"
