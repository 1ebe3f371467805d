"""Measurements on real workers, with plain Celery beside Headroom in the same run.

``./run bench NAME`` or ``python -m benchmarks NAME``. A figure that nobody can measure again is a
claim; these can be, on any machine, with nothing but what ``./run install`` brings.
"""
