"""The limit of queries in flight."""

from dataclasses import dataclass


@dataclass(frozen=True)
class InFlightLimit:
    """How many queries of a replica are in flight in Offline.

    Attributes:
        batch: sequences that its engine runs concurrently.
        backlog: further queries, so that the engine does not wait for new ones.
    """

    batch: int
    backlog: int

    def limit(self, replicas: int, waiting: int) -> int:
        """The limit of each of `replicas` while `waiting` queries have no replica.

        The backlog shrinks at the end of the load, so that a fast replica gets queries that would wait at a slow one.
        """
        return self.batch + min(self.backlog, waiting // replicas)
