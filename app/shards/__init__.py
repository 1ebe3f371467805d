"""What the application does with Discord's shards: the commands, and the rounds that beat sends to every worker."""
