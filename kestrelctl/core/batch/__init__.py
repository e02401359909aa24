"""What a foreign batch system says of its queue and its nodes, read without I/O."""
