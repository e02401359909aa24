"""Workers: what they have, what tasks take of that, and what fits."""
