"""The worker's side of its conversation with its manager."""
