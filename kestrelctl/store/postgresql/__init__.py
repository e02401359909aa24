"""The store of a manager in PostgreSQL."""
