"""The effects of each event on a pool."""
