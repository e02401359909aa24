"""Files that tasks read and leave, and where they are."""
