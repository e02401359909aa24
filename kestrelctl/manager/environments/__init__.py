"""Environments, seen by the manager: which there are, what starts and stops them."""
