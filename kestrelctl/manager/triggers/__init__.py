"""Triggers at work: what they see of the pool, when they fire, what they have done."""
