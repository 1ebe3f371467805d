"""The demonstration of shards: a bot on three pods, one killed, one drained, more shards, and the bill.

What happens, in this order:

1. A server, Discord's stand-in, three pods and a consumer of events start. Discord recommends 16 shards, and the pods
   share them.
2. Events begin to come, from all guilds.
3. A pod is killed (SIGKILL): the others resume its sessions.
4. A new pod joins, and one of the old ones is drained (SIGTERM): it hands its shards over.
5. A person sets 24 shards: they connect beside the old 16, take over in one step, and the old ones close.
6. The events end. What consumers heard and what the stand-in wrote down are weighed against each other. A promise that
   was broken makes the exit code 1.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from app.local.discord import checker
from app.local.shards.stage import READY_S, BotStage
from app.local.waiting import WaitError

if TYPE_CHECKING:
    from collections.abc import Callable

    from app.local.shards.board import BotBoard

PODS, SHARDS, MORE = 3, 16, 24
GUILDS = 300
PER_S = 60.0
TTL_S = 6.0
TAKEN_MS = (TTL_S + 2 + 1) * 1000
"""Within a TTL, one look and one connection a dead pod's shards are served again."""
LOOK_EVERY_S = 0.25


@dataclass
class Outcome:
    """What the demonstration showed; `as_json` is its machine-readable form."""

    figures: dict[str, Any]
    broken: list[str] = field(default_factory=list[str])

    def as_json(self) -> dict[str, Any]:
        """The figures by name, times in ms."""
        return {**self.figures, "broken": self.broken}


class Demo:
    """One run on a stage that is not up yet."""

    def __init__(self, stage: BotStage, board: BotBoard, *, per_s: float = PER_S) -> None:
        """`per_s`: events in a second."""
        self.stage, self.board, self.per_s = stage, board, per_s
        self._told_s = 0.0

    def run(self) -> Outcome:
        """Play the scene, and weigh what happened."""
        began_s = time.monotonic()
        self.board.event(f"starting: a server, Discord's stand-in with {GUILDS} guilds, {PODS} pods, a consumer")
        self.stage.start(PODS)
        self.board.scene.pods = dict.fromkeys(self.stage.pods, "holds shards")
        self._until(lambda: self.stage.settled(SHARDS), f"{SHARDS} shards to be ready")
        self.board.event(f"{SHARDS} shards are ready on {PODS} pods")
        self.stage.discord.load(self.per_s)
        self._for(2.0)
        takeover_ms = self._kill("pod-1")
        calm_s = self.stage.discord.now_s()
        self._drain("pod-2", "pod-4")
        changing_s = self._more_shards()
        self._for(2.0)
        self.board.event("the events end")
        self.board.scene.note = "waiting until consumers have heard everything"
        self.stage.hush()
        self._look(every_s=0.0)
        self.board.scene.note = ""
        return self._outcome(takeover_ms, calm_s, changing_s, time.monotonic() - began_s)

    def _kill(self, name: str) -> float:
        """Kill a pod; ms until the last of its shards was resumed elsewhere."""
        stage = self.stage
        shards = stage.held_by(name)
        at_s = stage.discord.now_s()
        stage.pods[name].kill()
        self.board.scene.pods[name] = "killed"
        self.board.event(f"{name} is killed (SIGKILL) with {len(shards)} shards, and not replaced")
        what = f"the shards of {name} to be resumed"
        times: dict[int, float] = self._until(lambda: stage.times_of("resumed", shards, at_s), what)
        self._until(lambda: stage.settled(SHARDS), f"{SHARDS} shards to be ready")
        taken_ms = (max(times.values()) - at_s) * 1000
        self.board.event(f"its shards are resumed on the others after {taken_ms / 1000:.1f} s")
        return taken_ms

    def _drain(self, leaving: str, joining: str) -> None:
        """A deploy in small: a new pod comes, an old one goes."""
        stage = self.stage
        stage.add_pod(joining)
        self.board.scene.pods[joining] = "starting"
        self.board.event(f"{joining} starts")
        self._until(
            lambda: any(member.name.startswith(f"{joining}#") for member in stage.look().view.members),
            f"{joining} to join",
        )
        self.board.scene.pods[joining] = "holds shards"
        shards = stage.held_by(leaving)
        stage.pods[leaving].terminate()
        self.board.scene.pods[leaving] = "draining"
        self.board.event(f"{leaving} is drained (SIGTERM) with {len(shards)} shards")
        self._until(lambda: not stage.pods[leaving].running, f"{leaving} to end")
        self.board.scene.pods[leaving] = "gone"
        self._until(lambda: stage.settled(SHARDS), f"{SHARDS} shards to be ready")
        self.board.event(f"{leaving} handed them over and has ended, exit code {stage.pods[leaving].exit_code}")

    def _more_shards(self) -> tuple[float, float]:
        """Change the number of shards; from when until when that took, on the stand-in's clock.

        It is over with the last old connection: from then on a pod that holds more may hand a shard over.
        """
        stage = self.stage
        from_s = stage.discord.now_s()
        outcome = stage.wants(MORE)
        self.board.event(f"a person sets {MORE} shards: {outcome}")
        self._until(lambda: stage.served().total == MORE, f"{MORE} shards to take over")
        self.board.event(f"{MORE} shards serve; the old {SHARDS} close one by one")
        self._until(lambda: stage.settled(MORE), "the old shards to be closed")
        self.board.event(f"the old {SHARDS} are closed")
        return from_s, stage.closed_s(SHARDS)

    # -- looking on

    def _until(self, holds: Callable[[], Any], what: str) -> Any:
        """Show the cluster until something holds. WaitError: it did not, in two minutes."""
        give_up_s = time.monotonic() + READY_S
        self.board.scene.note = f"waiting for {what}"
        while not (answer := holds()):
            if time.monotonic() > give_up_s:
                raise WaitError(f"waited {READY_S:g} s in vain for {what}; logs:\n{self.stage.last_words()}")
            self._look()
        self.board.scene.note = ""
        return answer

    def _for(self, seconds: float) -> None:
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            self._look()

    def _look(self, every_s: float = LOOK_EVERY_S) -> None:
        scene, stage = self.board.scene, self.stage
        scene.looked, scene.heard = stage.look(), stage.heard_count()
        scene.told = stage.discord.look()["told"]
        self.board.refresh()
        time.sleep(every_s)

    # -- the bill

    def _outcome(self, takeover_ms: float, calm_s: float, changing_s: tuple[float, float], seconds: float) -> Outcome:
        stage = self.stage
        verdict, entries, now_s = stage.verdict(), stage.discord.entries(), stage.discord.now_s()
        counts = checker.figures(entries, now_s)
        spells = checker.spells(entries, now_s)
        planned = [hole.length_s * 1000 for hole in checker.gaps(spells) if hole.from_s > calm_s]
        unserved = checker.unserved(spells, stage.discord.guilds(), *changing_s)
        figures: dict[str, Any] = {
            "shards": stage.served().total,
            "events": verdict.told,
            "lost": len(verdict.lost),
            "doubled": len(verdict.doubled),
            "out_of_order": len(verdict.disordered),
            "identifies": int(counts["identifies"]),
            "resumes": int(counts["resumed"]),
            "takeover_ms": round(takeover_ms),
            "gap_ms": round(max(planned, default=0.0), 1),
            "reshard_gap_ms": round(max((hole.length_s * 1000 for hole in unserved), default=0.0), 1),
            "delay_p99_ms": round(checker.share(verdict.late_s, 0.99) * 1000, 1),
            "seconds": round(seconds, 1),
        }
        return Outcome(figures, self._broken(verdict, figures, counts))

    def _broken(self, verdict: checker.Verdict, figures: dict[str, Any], counts: dict[str, float]) -> list[str]:
        broken = verdict.broken
        if figures["identifies"] != SHARDS + MORE:
            broken.append(f"{figures['identifies']} identifies: {SHARDS} and {MORE} are one for each shard")
        if counts["refused"]:
            broken.append(f"Discord refused {counts['refused']:g} identifies that came too soon")
        if figures["reshard_gap_ms"]:
            broken.append(f"a guild was not served for {figures['reshard_gap_ms']} ms during the change")
        if not 0 < figures["takeover_ms"] <= TAKEN_MS:
            broken.append(f"a dead pod's shards were served again after {figures['takeover_ms']} ms")
        return broken


def play(board: BotBoard, *, per_s: float = PER_S) -> Outcome:
    """Run the demonstration from nothing to its outcome; everything it started is ended.

    Raises:
        ServerError, StartError, WaitError: the cluster did not come to where it should.
    """
    try:
        with BotStage(shards=SHARDS, guilds=GUILDS, ttl_s=TTL_S) as stage:
            try:
                return Demo(stage, board, per_s=per_s).run()
            finally:  # after Ctrl-C too: it may take seconds
                board.scene.note = "ending the cluster"
                board.refresh()
    finally:
        board.scene.note = ""
