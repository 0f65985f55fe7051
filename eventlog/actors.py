"""Actors: who did what an event tells. A closed vocabulary, with an id where one is known.

The event's form refuses any other; recorder and importers take a message's actor from its role
here, so that one dialog has the same actors however it came into the log. Pure.
"""

from typing import Final

ACTORS: Final = ("agent", "tool", "verifier", "trainer", "operator", "system")

# Whose words a message is. All other roles (user, system, developer) speak for the environment.
_ACTOR_OF_ROLE: Final = {
    "agent": "agent",
    "assistant": "agent",
    "function": "tool",
    "model": "agent",
    "reasoning": "agent",
    "tool": "tool",
}


def actor_of_role(role: str) -> str:
    """The actor of a message of this role: `agent`, `tool`, or else `system`."""
    return _ACTOR_OF_ROLE.get(role, "system")


def is_actor(actor: str) -> bool:
    """Whether it is one of `ACTORS`, alone or with `:` and an id."""
    name, colon, each_id = actor.partition(":")
    return name in ACTORS and bool(each_id) == bool(colon)
