"""Fault reports of others, replayed."""
