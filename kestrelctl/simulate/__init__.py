"""A world in which the core runs on simulated time."""
