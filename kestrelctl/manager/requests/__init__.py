"""What users ask of the pool: each kind of request has a module."""
