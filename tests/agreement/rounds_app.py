"""An app whose beat sends rounds quickly, and whose workers record each round that they are told."""

# pyright: basic

from __future__ import annotations

import os

import redis
from celery import Celery

import throttle
from app.shards import broadcast
from tasks.shards.rounds import Numbers, VoteRounds

client = redis.Redis.from_url(os.environ["REDIS_URL"])


class Recorded(VoteRounds):
    """Tells the test of each round, and what became of it."""

    def ask(self) -> bool:
        """As a pod's."""
        taken = super().ask()
        self.take()
        client.rpush("told", f"{os.environ['POD_NAME']} {int(taken)}")
        return taken


broadcast._here = Recorded(Numbers(every_s=1000.0, duplicate_s=float(os.environ.get("DUPLICATE_S", "0"))))
app = Celery("rounds", broker=os.environ["REDIS_URL"])
app.conf.result_expires = None
app.conf.beat_schedule = {"shard-round": {**broadcast.entry(), "schedule": 0.5}}
throttle.install(app, gate=os.environ.get("GATE", "take"))
broadcast.install(app)
