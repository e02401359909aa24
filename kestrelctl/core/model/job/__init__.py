"""A job and its tasks: what is run, when, and when it counts as done."""
