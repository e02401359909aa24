"""Mails about jobs and workers."""
