"""Fault reports of others: the table of them, and what replays some (`tests/trouble/test_replays.py`)."""
