"""Properties of workers' hosts: their types, what changed of them, and what they add up to."""
