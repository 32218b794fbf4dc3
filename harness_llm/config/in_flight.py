"""The limit of queries in flight."""

from dataclasses import dataclass


@dataclass(frozen=True)
class InFlightLimit:
    """How many queries a replica may hold in Offline.

    Attributes:
        batch: sequences that its engine runs at once.
        backlog: more of them, so that the engine never waits for us.
    """

    batch: int
    backlog: int

    def limit(self, replicas: int, waiting: int) -> int:
        """What each of `replicas` may hold while `waiting` queries are with none.

        The backlog goes as the load ends: what a slow replica has taken early, another could have begun by now.
        """
        return self.batch + min(self.backlog, waiting // replicas)
