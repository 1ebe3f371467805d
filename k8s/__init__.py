"""What runs a fleet on Kubernetes: operator, admission, scaling.

It decides about pods and never touches Celery, so that an operator's image carries neither broker nor tasks.
"""
