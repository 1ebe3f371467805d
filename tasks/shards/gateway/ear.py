"""Who hears what a connection hears."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection
    from contextlib import AbstractAsyncContextManager

    from tasks.shards.gateway.plan import Dropped
    from tasks.shards.gateway.session import Event, Session


class Ear(Protocol):
    """Who hears what a connection hears. Called in its loop; what is no coroutine returns at once."""

    def turn(self) -> AbstractAsyncContextManager[None]:
        """Wait, before a socket is opened, for the turn to identify.

        The turn is over when IDENTIFY was sent or the socket has ended. Discord drops sockets that say nothing for
        long: so not all shards of a pod wait for the gate at once.
        """
        ...

    async def may_resume(self) -> None:
        """Wait, before a socket for a session is opened, until that is not another pod's business. Not for long."""
        ...

    async def may_identify(self) -> bool:
        """Wait for the cluster's gate. True: IDENTIFY goes out at once; False: not at all, it is over."""
        ...

    def began(self, session: Session, guilds: Collection[int]) -> None:
        """READY: a new session, and the ids of the guilds in it."""
        ...

    def heard(self, event: Event) -> None:
        """A dispatch; each in its order, READY and RESUMED left out."""
        ...

    async def room(self) -> None:
        """Wait, within what a session has missed, until there is room for more of it."""
        ...

    def handed_on(self) -> int:
        """Sequence of the session up to which nothing need come again, for whoever resumes it; beats tell it Discord.

        Discord does not say whether it forgets what a beat confirms, so none confirms what could still be lost here.
        """
        ...

    def answered(self, sent_s: float) -> None:
        """Discord answered a beat that was sent then (monotonic): what it had sent until it heard it has come."""
        ...

    def settled(self) -> None:
        """RESUMED came; or READY and all its guilds, or their deadline passed. Again after each socket."""
        ...

    def dropped(self, why: Dropped) -> None:
        """Discord does not know the session any more, or was not able to resume it: a new one comes."""
        ...

    def lost(self, why: str, after_s: float) -> None:
        """The socket is gone, or could not be opened; the next one is tried after so long."""
        ...

    def over(self, why: str, *, fatal: bool, code: int) -> None:
        """For good. `fatal`: no other pod shall try either; `code`: Discord's close code, 0 for none."""
        ...
