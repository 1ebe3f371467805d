"""The deployable Celery application of Headroom: settings, queues, schedule and command line.

``throttle`` is the library that any Celery application can install; ``tasks`` is the work. This
package ties the two together into something that runs, and carries the local fleet that shows it.
"""
