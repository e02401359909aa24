"""Membership of a pool: groups of workers, what became of members, and whom that concerns."""
