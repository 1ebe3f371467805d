"""The Celery side of Headroom: how a worker takes messages, holds them and gives them back.

Stock Celery on Redis removes a message with BRPOP and files it with a second command; whatever dies in between takes
the message along. It also cannot refuse work: a `task_prerun` handler that raises does not stop the task. So the brake
sits where the message is taken. A worker's BRPOP on its queues becomes two commands on the same connection:

* TAKE asks the fleet's rule, removes the head message and holds it for this member, all in one script; or, with
  nothing to take, it registers the member as waiting.
* BRPOP on the member's own bell, only after TAKE found nothing. Whatever it answers means "send TAKE again".

Whose part is what
==================
=============  =====================================================================================================
`vocabulary`   the words: the state, the events that change it, the commands that follow
`machine`      one pure function, `step(state, event) -> (state, commands)`. Every decision is there
`driver`       runs the commands and feeds what came of them back; owns the lock, the client and the heartbeat
`take`         kombu's channel and transport with our two commands in place of theirs
`publishing`   how a channel publishes: PUT
`retries`      the lane of a task that asks to be run again
`credit`       kombu's prefetch credit, and the way of an acknowledgement to the driver
`step`         the bootstep: ties one consumer (its requests, its acknowledgements) to the driver
`hosting`      what the bootsteps of both gates share: how a consumer wakes up, lives and ends
`beginning`    the last look before a task begins
`pipes`        how a prefork worker reads what its children answer
`requeue`      the other gate: asks before a task goes to its pool, puts back what is denied. Its decisions are in
               `requeue_machine`, its driver is `requeue_driver`
`doors`        ... and how it keeps a broker from fetching
`limits`       time limits of tasks, and what guards where a pool cannot interrupt them
`attempts`     which failures are tried again, and what becomes of the others
`memory`       gives back what a large task has freed
`routes`       the queue that a message was sent to
`connecting`   the way to the fleet's Redis, with the checks before any work
`signals`      `worker_init`, `worker_ready`, `task_prerun`, `worker_shutdown`
`membership`   what is said of a pod's name that is taken, and LEAVE while Redis is away for a moment
`telling`      from what happens here to the events of `throttle.events`
`drain`        how a worker drains: by command, by signal; with `control` (the command's address), `shedding` (what has
               not begun goes back), `stopping` (how a running task is told) and `guarding` (from where to where)
`ownership`    the task's side of its take: `throttle.still_mine`
`installing`   what `throttle.install` sets on an app
`internals`    every name of Celery and kombu that the above stands on, with the reason; a contract test guards it
=============  =====================================================================================================

What a crash leaves is what the operations leave (see the docstring of `throttle`): a message is held by a member from
the instant it leaves its queue, and the driver writes nothing down that the server does not know. A process that dies
between a task's end and its acknowledgement runs the task a second time: at least once, never less.
"""
