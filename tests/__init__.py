"""Tests, by the part of the project that they exercise; ``tests.support`` is what they share."""
