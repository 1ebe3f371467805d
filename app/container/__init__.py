"""What the image runs: one role of the application as the container's first process.

    python3 -m app.container worker | beat | flower      the roles, with Celery's own options behind them
    python3 -m app.container health ROLE [PORT]          exit code 0 when the role in this container is well
    python3 -m app.container ANYTHING ELSE               a command of Celery: inspect, control, purge ...

The first process of a container (PID 1) is unlike any other in two ways, and both are met here rather than by an init
program in front, so that a signal reaches the worker itself and its exit code is the container's:

- The kernel ignores a signal to it that it does not handle. Celery handles SIGTERM only once it is up, which takes
  as long as Redis does to come; until then a handler of `__main__` ends the process at once.
- It inherits the processes whose parents died, and each of them stays a zombie until it is reaped; see `steps.Orphans`.

The pool's children get no SIGTERM: `docker stop` and Kubernetes signal the first process alone, which drains.
"""
