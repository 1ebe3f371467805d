"""The shards agree: the protocol on a clock of its own, and with real processes. Runs as the step `shards`."""
