"""What the benchmark ``flood`` is made of.

``producer`` is a process that publishes as fast as it can. ``follower`` reads the fleet's journal while it is written
and keeps it short, so that it takes no room from the queue.
"""
