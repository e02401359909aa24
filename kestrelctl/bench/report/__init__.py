"""The page of a benchmark, and its curves."""
