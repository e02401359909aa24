"""A person talks to the pool from a chat program: words become requests, answers become sentences.

Pure: the manager carries the text.
"""
