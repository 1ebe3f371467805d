"""A Discord bot's cluster on this machine: Discord's stand-in, pods that hold shards, and one that hears the events.

`stage` puts it on its feet, `demo` plays a scene on it, `board` shows it. What consumers hear is written down by
`consumer`, the task that events come to, and weighed against the stand-in's book by `app.local.discord.checker`: the
product has no part in the verdict.
"""
