"""What each event does to a pool."""
