"""The module that `celery -A` loads in the worker processes of the feature tests."""

from __future__ import annotations

import json
import os

from tests.features.workload import make

app = make(
    os.environ["FEATURES_BROKER"],
    os.environ["REDIS_URL"],
    config=json.loads(os.environ["FEATURES_CONFIG"]),
    install=json.loads(os.environ["FEATURES_INSTALL"]),
)
