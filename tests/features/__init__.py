"""Everything that Celery does, under the brake: one scenario for each feature, on each of the four pools."""
