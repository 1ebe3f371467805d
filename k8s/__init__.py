"""What runs a fleet on Kubernetes: operator, admission, scaling. It decides about pods and knows no Celery."""
