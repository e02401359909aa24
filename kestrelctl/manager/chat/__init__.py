"""Chat clients: what they are answered, and workers that speak the protocol of 2009."""
