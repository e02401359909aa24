"""Four real pools that lend each other machines, beside the table of the source."""
