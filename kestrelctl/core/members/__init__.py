"""The workers of a pool, and who may become one."""
