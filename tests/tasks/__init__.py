"""Tests of the tasks that workers run."""
