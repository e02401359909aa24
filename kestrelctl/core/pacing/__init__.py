"""When the next thing may or must be done."""
