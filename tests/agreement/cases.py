"""What Discord may do to a shard, what follows, and what a person sees of it: the tables of docs/reference/discord.md.

Each row is played by test_cases.py with two pods, a real Redis and a Discord as strict as the real one, and what a
person sees is looked for in the log. `python -m tests.agreement.cases` writes the tables anew; a test compares them.

In the texts `{hello_s}` and the like are the connection's numbers, `{code}` and `{words}` a close code of Discord's and
its meaning, and `…` is anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from app.local.processes import ROOT
from tasks.shards.gateway.payloads import CLOSES
from tasks.shards.gateway.plan import Numbers
from tests.agreement import played
from tests.support.pages import Part

if TYPE_CHECKING:
    from tasks.shards.gateway.plan import How
    from tests.agreement.played import Scene

ON_PAGE = Part(
    ROOT / "docs" / "reference" / "discord.md",
    "<!-- cases: begin (python -m tests.agreement.cases) -->",
    "<!-- cases: end -->",
)
SHOWN = "shards>"
"""Before what `python -m app shards` shows; the rest is a line of the log."""

AGAIN = "INFO shards: shard … of …: {why}; the next try is in … s"
ENDED = "INFO shards: Discord has ended the session of shard … of …; it identifies"
UNANSWERED = "WARNING shards: Discord answers no RESUME of shard … of …; it identifies, and what it missed is lost"
OVER = "ERROR shards: shard … of … is over: closed with {code}: {words}"
STOPPED = "ERROR shards: stopped for all pods: closed with {code}: {words}"


def again(why: str) -> str:
    """The line of a connection that is lost and comes back."""
    return AGAIN.replace("{why}", why)


class Case(NamedTuple):
    """One row."""

    what: str
    follows: str
    sees: tuple[str, ...]
    play: Scene
    how: How | None = None
    """What the plan of the connection calls it."""
    codes: tuple[int, ...] = ()
    unnamed: tuple[int, ...] = ()
    """Codes that are played too, and that the code has no entry for."""


CONNECTIONS = (
    Case("op 7, at any time", "The socket is closed with 4000, and the session is resumed at once.",
         (again("Discord asked for another connection"),), played.op_7, "asked"),
    Case("op 9 `true`", "RESUME after {invalid_least_s:g} to {invalid_most_s:g} s.",
         (again("Discord could not resume the session now"),), played.op_9_true, "try again"),
    Case("op 9 `false` in a session", "A new one after {invalid_least_s:g} to {invalid_most_s:g} s, through the gate.",
         (again("Discord does not take the session"), ENDED), played.op_9_false, "invalid"),
    Case("op 9 `false` in answer to IDENTIFY", "The same, through the gate once more.",
         (again("Discord does not take the IDENTIFY"),), played.op_9_to_identify, "invalid"),
    Case("closes with {codes}, or a code that is not on this page",
         "RESUME, at the session's own address and then at the main one: no identify, and nothing is missed.",
         (again("closed with {code}…"),), played.resumed, "closed",
         (4000, 4001, 4002, 4003, 4005, 4008), (1000, 1001, 1011, 4006, 4999)),
    Case("closes with {codes}", "A new session, through the gate.",
         (again("closed with {code}: {words}"), ENDED), played.new_session, "closed", (4007, 4009)),
    Case("the connection is lost", "As with 4000.", (again("the connection was lost"),), played.lost, "closed"),
    Case("the session's own address is dead", "RESUME at the main one.",
         (again("cannot connect: …"),), played.dead_resume_url, "unreachable"),
    Case("an HTTP error in place of the handshake, such as 429",
         "Another try, after twice as long each time, {again_most_s:g} s at most. The session is kept.",
         (again("cannot connect: …429…"),), played.handshake_refused, "unreachable"),
    Case("sends what makes no sense", "The socket is closed with 4000, and the session resumed.",
         (again("Discord sent a payload that is no JSON"),), played.garbled, "garbled"),
    Case("ends {breaker_closes} sockets of a shard within {breaker_within_s:g} s",
         "A pause of {breaker_pause_s:g} s; then one try, and another pause if it ends as well.",
         ("WARNING shards: shard … of …: closed with 1011; the next try is in {breaker_pause_s:.1f} s",),
         played.loops),
)  # fmt: skip

SILENCE = (
    Case("no HELLO", "After {hello_s:g} s another try; with a session a RESUME, at the main address.",
         (again("no HELLO within {hello_s:g} s"),), played.no_hello, "silent"),
    Case("no answer to IDENTIFY", "After {ready_s:g} s another try, through the gate.",
         (again("no answer to IDENTIFY within {ready_s:g} s"),), played.no_ready, "silent"),
    Case("no answer to RESUME",
         "After {ready_s:g} s another, at the main address; after {unanswered}, and {resumable_s:g} s, a new session.",
         (again("no answer to RESUME within {ready_s:g} s"), UNANSWERED), played.no_resumed, "silent"),
    Case("no answer to a heartbeat until the next is due (a zombie)",
         "The socket is closed with 4000, and the session resumed.",
         (again("no answer to a beat for … s"),), played.zombie, "zombie"),
    Case("a guild of READY does not come", "After {settled_s:g} s the shard counts as ready without it.",
         (), played.guild_is_missing),
)  # fmt: skip

FOR_GOOD = (
    Case("closes with {code}: {words}",
         "Nobody connects anything any more with this token and these intents. What is connected stays.",
         (OVER, STOPPED, f"{SHOWN} stopped     these credentials, by Discord: closed with {{code}}: {{words}}; …"),
         played.useless_credentials, "closed", (4004, 4012)),
    Case("closes with {code}: {words}",
         "Nobody identifies any more with these intents. What is connected stays, and sessions are resumed.",
         (OVER, STOPPED, f"{SHOWN} stopped     these credentials, by Discord: closed with {{code}}: {{words}}; …"),
         played.refused_intents, "closed", (4013, 4014)),
    Case("closes a shard of a pending target with {code}: {words}", "The target is given up; the active one goes on.",
         (OVER, "WARNING shards: target … is given up: …{words}…"), played.pending_not_allowed, "closed", (4010,)),
    Case("closes a shard of the active target with {code}: {words}",
         "Nobody identifies for this target any more, until there is another.",
         (OVER, STOPPED, f"{SHOWN} stopped     version …, by Discord: closed with {{code}}: {{words}}; until …"),
         played.active_not_allowed, "closed", (4010,)),
    Case("closes with {code}: {words}",
         "The same, and what Discord recommends next becomes the target at once, by more than half of the pods.",
         (OVER, STOPPED, "INFO shards: target … serves from now on"), played.more_shards, "closed", (4011,)),
)  # fmt: skip

LIMITS = (
    Case("no identifies are left today", "Who has no session waits for the next day. Sessions are resumed.",
         ("ERROR shards: today's identifies are used up; who has no session waits, all others go on",
          f"{SHOWN} identifies  … of … left for … h, … at a time"), played.budget_is_spent),
    Case("too few identifies for a new number of shards are left", "It is refused, and the pods try with each round.",
         ("ERROR shards: … shards are refused: today's identifies cannot pay for them",
          f"{SHOWN} last        … shards refused: … identifies are left today"), played.budget_does_not_pay),
    Case("429 to the question for the number of shards", "The pod waits for as long as it is asked to, without a vote.",
         ("WARNING shards: Discord …; no vote until it can be", "INFO shards: Discord answers again"),
         played.asked_too_often),
    Case("401 to it", "The pod has no vote until it is started anew, and asks no more. It holds what it holds.",
         ("ERROR shards: Discord refuses the bot: …; this pod votes no more until it is started with another",),
         played.unknown_token),
    Case("Redis is away meanwhile", "Sessions are resumed, after 2.5 s at most. Nobody identifies until it is back.",
         ("WARNING shards: Redis does not answer (…); every connection stays",
          again("the connection was lost")), played.without_redis),
)  # fmt: skip

GROUPS = {
    "A connection ends": CONNECTIONS,
    "Discord is silent": SILENCE,
    "Discord closes for good": FOR_GOOD,
    "Limits, and no Redis": LIMITS,
}
CASES = [case for group in GROUPS.values() for case in group]


def filled(text: str, numbers: Numbers, codes: tuple[int, ...] = ()) -> str:
    """A text with its numbers, and with one code or several."""
    named = {
        "codes": ", ".join(map(str, codes)),
        "code": str(codes[0]) if len(codes) == 1 else "…",
        "words": CLOSES[codes[0]][1] if len(codes) == 1 and codes[0] in CLOSES else "…",
    }
    return text.format(**numbers._asdict(), **named)


def rows(case: Case) -> list[str]:
    """A case in Markdown: one row, or one for each code that it is about."""
    about = [(code,) for code in case.codes] if "{code}" in case.what else [case.codes]
    lines: list[str] = []
    for codes in about:
        cells = (filled(case.what, Numbers(), codes), filled(case.follows, Numbers(), codes))
        seen = "<br>".join(_seen(filled(text, Numbers(), codes)) for text in case.sees)
        lines.append(f"| {' | '.join((*cells, seen or 'nothing'))} |")
    return lines


def _seen(text: str) -> str:
    """A line that a person sees, in Markdown."""
    where = "in `shards`: " if text.startswith(SHOWN) else ""
    return f"{where}`{' '.join(text.removeprefix(SHOWN).replace('……', '…').split())}`"


def tables() -> str:
    """All tables in Markdown."""
    lines: list[str] = []
    for title, cases in GROUPS.items():
        lines += [f"## {title}", "", "| Discord | what follows | what you see |", "|---|---|---|"]
        lines += [row for case in cases for row in rows(case)]
        lines.append("")
    return "\n".join(lines).strip()


if __name__ == "__main__":
    ON_PAGE.write(tables())
