"""The Celery side: the pure state machine, and real worker processes of all four pools on a real server."""
