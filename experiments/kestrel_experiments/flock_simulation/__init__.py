"""Many pools that lend each other machines, on simulated time."""
