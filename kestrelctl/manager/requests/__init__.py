"""The requests of users to the pool: each kind has a module."""
