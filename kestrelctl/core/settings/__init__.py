"""The kinds of what admins set, list and remove by name: one module each."""
