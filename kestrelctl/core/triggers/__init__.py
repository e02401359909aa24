"""Rules that have something done when an expression over the pool is true."""
