"""Members of the pool: what became of them, and what they tell of their hosts."""
