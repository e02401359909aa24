"""Pools that find each other: Pastry, without I/O (Rowstron and Druschel, Middleware 2001)."""
