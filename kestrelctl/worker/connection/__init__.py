"""What a worker and its manager say to each other."""
