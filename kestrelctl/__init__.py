"""Kestrel: a pool for many short tasks on machines that come and go."""

#: The only place of the version: X.Y.Z in the commit of a release, X.Y.Z.dev0 in those between two.
#: A build from one of these has the commit added: see `kestrelctl.checkout`.
__version__ = "0.3.0.dev0"
