"""A Discord on the loopback address that is as strict as the real one: for tests and demonstrations.

Its rules are Discord's own (identify budget, rate limits, who may ask); its answers can be scripted. No test ever asks
the real one.

`rest` answers `GET /gateway/bot`, in a thread. `gateway` is what a shard connects to, in one asyncio loop:

    bot = Bot("token", shards=4, concurrency=16)
    async with Gateway(bot, guilds=40, terms=Terms(trickle_s=0.01)) as discord:
        connect(discord.url)                            # add /?v=10&encoding=json[&compress=zlib-stream]
        guild = next(iter(discord.guilds.ids))
        discord.say(guild, "MESSAGE_CREATE", {"id": "1", "content": "x"})         # every session of its shard hears it
        discord.script.add(Fault(do="close", code=1011, at="identify", shard=3, times=None))   # when its moment comes
        discord.act(Fault(do="reconnect", shard=2))                                            # now
        await discord.resume_door.set("refuses")        # also: hangs, resets, open; `main` is the other door
        discord.book.of("identify", "resumed", "closed")                          # what clients did

Where the pods are processes, `remote.start` starts both in one more (`python -m app.local.discord`), which is driven
over HTTP on the loopback address. `load` tells so many events a second, of all that people do in guilds. `checker`
weighs what consumers heard against the book: lost, doubled, out of order, gaps.

What can be scripted is in `script`, the numbers of the rules in `terms`, what is written down in `book`. An event is
numbered where the product cannot see it (`book.Told`).
"""
