"""Values: what a job asks for, what a worker offers, what is charged, reported and stored."""
