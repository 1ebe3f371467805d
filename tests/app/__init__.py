"""Tests of the application and of its local fleet."""
