"""Ten trivial Celery tasks in a chain on Redis: the baseline that everybody can write.

Nothing is durable here beyond the broker's memory: no result backend, early acknowledgement, no persistence. That is
the chain's fastest setting. The last task pushes to a list, which is the cheapest way to learn that a chain has ended.
"""

import os

import redis
from celery import Celery, chain

QUEUE = "benchmark-chain"
ENDED = "benchmark-chain-ended"
STEPS = 10
END_SECONDS = 60

app = Celery("benchmark-chain", broker=os.environ["BROKER_URL"])
app.conf.update(
    broker_connection_retry_on_startup=True,
    task_default_queue=QUEUE,
    task_ignore_result=True,
    worker_hijack_root_logger=False,
    worker_prefetch_multiplier=16,
)
_ended = redis.Redis.from_url(os.environ["REDIS_URL"], socket_timeout=END_SECONDS + 1)


@app.task(name="benchmark.step")
def step(value: int) -> int:
    """The work of one Step."""
    return value + 1


@app.task(name="benchmark.last_step")
def last_step(value: int) -> None:
    """The work of the tenth, and word that the chain has ended."""
    _ended.rpush(ENDED, value + 1)


def start() -> None:
    """Publish one chain."""
    chain(step.s(0), *(step.s() for _ in range(STEPS - 2)), last_step.s()).apply_async()


def await_end() -> None:
    """Return when one more chain has ended with the right value."""
    ended = _ended.blpop([ENDED], END_SECONDS)
    if not ended or int(ended[1]) != STEPS:
        raise RuntimeError(f"a chain ended with {ended}")


def run(flows: int) -> None:
    """Start that many chains, then wait for all."""
    for _ in range(flows):
        start()
    for _ in range(flows):
        await_end()


if __name__ == "__main__":
    from benchmarks.driver import serve, timed

    _ended.delete(ENDED, QUEUE)
    serve(run=run, latency=lambda count: timed(lambda: run(1), count))
