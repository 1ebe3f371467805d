"""The work that workers run. It knows the library, never the application that runs it.

Tasks are ``shared_task``: they belong to whichever Celery application imports them.
"""
