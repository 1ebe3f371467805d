"""One producer of a flood: ``python -m benchmarks.flooding.producer NUMBER URL FILE [--pipelined]``.

It publishes tasks with the ids ``NUMBER-0``, ``NUMBER-1``, ... until it is told to end, by SIGTERM. It waits for each
answer, writes the number of each task that was accepted to the file, and when it has been refused it pauses for a
moment, as a service would. ``--pipelined`` publishes as a service in another language might: ready messages, a hundred
at a time, past Celery and past the brake, which rings no bell. Its last line is a JSON object with what it was told.
"""

from __future__ import annotations

import itertools
import json
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import redis

from benchmarks import workload

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PAUSE_S = 0.01
AT_ONCE = 100
TEMPLATE = "template-of-a-task"


def main() -> None:
    """Publish until SIGTERM."""
    number, url, file = sys.argv[1:4]
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: ended.append(number))
    refusals: Counter[str] = Counter()
    publish = pipelined(url) if "--pipelined" in sys.argv else one_by_one(url)
    counter = itertools.count()
    sent = 0
    with Path(file).open("w", buffering=1024 * 1024) as accepted:
        while not ended:
            refused = 0
            for n, error in publish(number, counter):
                sent += 1
                if error is None:
                    accepted.write(f"{n}\n")
                else:
                    refused += 1
                    refusals[f"{type(error).__name__}: {error}"] += 1
            if refused:
                time.sleep(PAUSE_S)
    print(json.dumps({"sent": sent, "refusals": refusals}))


def one_by_one(url: str) -> Callable[[str, Iterator[int]], Iterator[tuple[int, Exception | None]]]:
    """A publisher through Celery, with the library: each task by itself."""
    app = workload.create(url, gate="take")

    def publish(number: str, counter: Iterator[int]) -> Iterator[tuple[int, Exception | None]]:
        n = next(counter)
        try:
            app.send_task("rest", (0.0,), task_id=f"{number}-{n}", queue=workload.NORMAL, ignore_result=True)
        except Exception as error:  # noqa: BLE001 - whatever a producer is told is what is measured here
            yield n, error
        else:
            yield n, None

    return publish


def pipelined(url: str) -> Callable[[str, Iterator[int]], Iterator[tuple[int, Exception | None]]]:
    """A publisher of ready messages, many at a time."""
    client = redis.Redis.from_url(url)
    raw = template(client, url)

    def publish(number: str, counter: Iterator[int]) -> Iterator[tuple[int, Exception | None]]:
        numbers = list(itertools.islice(counter, AT_ONCE))
        with client.pipeline(transaction=False) as pipe:
            for n in numbers:
                pipe.lpush(workload.NORMAL, raw.replace(TEMPLATE.encode(), f"{number}-{n}".encode()))
            answers: list[Any] = pipe.execute(raise_on_error=False)
        for n, answer in zip(numbers, answers, strict=True):
            yield n, answer if isinstance(answer, Exception) else None

    return publish


def template(client: redis.Redis, url: str) -> bytes:
    """A message as Celery makes it, whose id is to be replaced."""
    queue = f"template-{time.time_ns()}"
    with workload.create(url, gate="") as app:
        app.conf.task_queues = None
        app.send_task("rest", (0.0,), task_id=TEMPLATE, queue=queue, ignore_result=True)
    raw: Any = client.lpop(queue)
    message = json.loads(raw)
    message["properties"]["delivery_info"] = {"exchange": workload.NORMAL, "routing_key": workload.NORMAL}
    return json.dumps(message).encode()


if __name__ == "__main__":
    main()
