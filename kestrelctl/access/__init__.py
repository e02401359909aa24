"""The way of a program to a pool: which one is meant, and a connection to it."""
