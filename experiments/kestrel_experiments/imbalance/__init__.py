"""Hosts that are shared out among classes of work, for good or as work comes."""
