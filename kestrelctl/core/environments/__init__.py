"""Decides, without I/O, about environments that are made when tasks need them."""
