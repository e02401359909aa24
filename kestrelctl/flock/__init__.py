"""Pools that find each other and lend each other what is idle."""
