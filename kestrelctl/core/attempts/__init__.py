"""The life of attempts: the only writer of what workers hold, run and have free."""
