"""From end to end, by pytest-celery's own fixtures: a broker, a back end, workers, a producer."""
