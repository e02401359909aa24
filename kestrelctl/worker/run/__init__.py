"""Starts, limits, watches and ends attempts."""
