"""The store of one manager on one machine: SQLite."""
