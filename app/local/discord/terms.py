"""The numbers of Discord's rules, as its documentation gives them; a test may shorten them at any time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(kw_only=True)
class Terms:
    """Of one gateway."""

    identify_every_s: float = 5.0
    """Between two IDENTIFYs of one bucket."""
    heartbeat_s: float = 41.25
    beat_patience: float = 1.5
    """A client that has not beaten for so many intervals is closed."""
    sends: int = 120
    """A client's payloads in a window."""
    sends_window_s: float = 60.0
    unidentified_s: float = 60.0
    """A connection that has no session by then is closed."""
    reconnect_grace_s: float = 30.0
    """A client that ignores an op 7 is closed."""
    resume_window_s: float = 90.0
    """A session without a connection lives so long."""
    replays: int = 100_000
    """Events that a session can replay."""
    forgets_beaten: bool = False
    """Whether what a heartbeat says to have arrived cannot be replayed any more; Discord does not say."""
    twin: Literal["takes", "refused"] = "takes"
    """A RESUME of a session that has a living connection takes it over, or gets an op 9; Discord does not say."""
    lag_s: float = 0.0
    """A session hears of a guild up to so much later, each session and guild with a lag of its own."""
    leaves_out: float = 0.0
    """The share of events that one of the sessions which should hear them does not."""
    trickle_s: float = 0.0
    """Between two GUILD_CREATEs after READY."""
    tells_outages: bool = False
    """Whether a guild in an outage gets a GUILD_DELETE after READY, or nothing: Discord does either."""
    guilds_per_shard: int = 2500
    multiple: int = 1
    """A very large bot's total must be a multiple of it."""
    privileged: int = 0
    """Privileged intents that the bot was granted."""
