"""The query table under any order of answers and failures."""

import itertools

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, precondition, rule

from harness_llm.config.in_flight import InFlightLimit
from harness_llm.errors import RunFailed
from harness_llm.loadgen.query_table import MAX_FAILURES, Query, QueryTable

LENGTHS = np.array([5, 9, 2, 7, 30, 1, 4, 4])


def query_table(in_flight_limit: InFlightLimit | None = None, *replicas: str) -> QueryTable:
    made = QueryTable(in_flight_limit)
    made.reset(LENGTHS)
    for replica in replicas:
        made.add_replica(replica)
    return made


class Life(RuleBasedStateMachine):
    """Queries come, are answered in any order, replicas come and go; a model keeps count beside it."""

    replicas = Bundle("replicas")
    in_flight_limit: InFlightLimit | None = None

    def __init__(self) -> None:
        super().__init__()
        self.query_table = query_table(self.in_flight_limit)
        self.names = iter(range(10**6))
        self.offered: set[int] = set()
        self.answered: set[int] = set()
        self.held: dict[str, dict[int, Query]] = {}
        self.first: dict[int, int] = {}
        self.started: dict[str, set[int]] = {}

    @rule(target=replicas)
    def join(self) -> str:
        name = f"replica-{next(self.names)}"
        self.query_table.add_replica(name)
        self.held[name] = {}
        self.started[name] = set()
        return name

    @rule(samples=st.lists(st.integers(0, len(LENGTHS) - 1), max_size=20))
    def offer(self, samples: list[int]) -> None:
        queries = [2**63 + next(self.names) for _ in samples]
        self.query_table.issue(queries, samples)
        self.offered |= set(queries)

    @rule()
    def assign(self) -> None:
        for replica, share in self.query_table.assign(0.0):
            for query in share:
                assert query.first == self.first.get(query.id)
                assert query.tokens == LENGTHS[query.sample]
                assert not any(query.id in held for held in self.held.values())
                self.held[replica][query.id] = query

    @precondition(lambda self: any(self.held.values()))
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        replica = data.draw(st.sampled_from([name for name, held in self.held.items() if held]))
        query = data.draw(st.sampled_from(list(self.held[replica])))
        if query not in self.first and data.draw(st.booleans()):
            self.first[query] = 7
            before = itertools.takewhile(lambda other: other != query, self.held[replica])
            self.started[replica] |= {query, *(other for other in before if other in self.first)}
            self.query_table.first_token(replica, query, 7)
            return
        del self.held[replica][query]
        assert self.query_table.finish(replica, query, 5, 0.1).first == self.first.get(query)
        self.answered.add(query)

    @rule(replica=consumes(replicas))
    def lose(self, replica: str) -> None:
        queries = self.held.pop(replica)
        if any(query.failures == MAX_FAILURES - 1 for query in queries.values()):
            self.held[replica] = queries  # the run would end
            return
        assert self.query_table.fail_replica(replica) == len(queries)

    @invariant()
    def every_query_is_somewhere(self) -> None:
        held = sum(len(queries) for queries in self.held.values())
        assert self.query_table.unanswered == len(self.offered) - len(self.answered)
        assert self.query_table.waiting == self.query_table.unanswered - held

    @invariant()
    def loads_are_what_is_held(self) -> None:
        assert self.query_table.loads.keys() == self.held.keys()
        for replica, load in self.query_table.loads.items():
            queries = self.held[replica].values()
            assert load.running == len(queries)
            assert load.unstarted_tokens == sum(
                query.tokens for query in queries if query.id not in self.started[replica]
            )

    def teardown(self) -> None:
        if self.held:
            while self.query_table.unanswered:
                self.assign()
                for replica, queries in self.held.items():
                    for query in list(queries):
                        self.query_table.finish(replica, query, 5, 0.1)
                        del queries[query]
                        self.answered.add(query)
            assert self.answered == self.offered


class OfflineLife(Life):
    """The same where each replica holds at most its credit."""

    in_flight_limit = InFlightLimit(batch=3, backlog=2)

    @invariant()
    def nobody_has_more_than_its_credit(self) -> None:
        assert all(load.running <= 5 for load in self.query_table.loads.values())


TestServer = Life.TestCase
TestOffline = OfflineLife.TestCase
for case in (TestServer, TestOffline):
    case.settings = settings(max_examples=60, stateful_step_count=40)


def test_requeued_queries_are_sent_first() -> None:
    offline = query_table(InFlightLimit(batch=2, backlog=0), "a")
    offline.issue([1, 2, 3, 4, 5], [0, 1, 2, 3, 4])
    [(_, share)] = offline.assign(0.0)
    assert [query.id for query in share] == [1, 2]
    offline.first_token("a", 2, 77)
    assert offline.fail_replica("a") == 2
    offline.add_replica("b")
    [(replica, again)] = offline.assign(0.0)
    assert (replica, [(query.id, query.first, query.failures) for query in again]) == ("b", [(1, None, 1), (2, 77, 1)])


def test_requeued_prompts_are_computed_again_and_spread_over_the_replicas() -> None:
    server = query_table(None, "failed")
    server.issue(range(8), [4] * 8)
    server.assign(0.0)
    for query in range(8):
        server.first_token("failed", query, 7)
    server.fail_replica("failed")
    server.add_replica("a")
    server.add_replica("b")
    assert [len(share) for _, share in server.assign(0.0)] == [4, 4]
    assert server.loads["a"].unstarted_tokens == 4 * LENGTHS[4]
    server.issue([8], [0])
    [(replica, _)] = server.assign(0.0)
    server.first_token(replica, 8, 7)
    assert server.loads[replica].unstarted_tokens == 0


def test_query_that_fails_several_replicas_fails_the_run() -> None:
    server = query_table()
    server.issue([1], [4])
    for name in "abc"[: MAX_FAILURES - 1]:
        server.add_replica(name)
        assert server.assign(0.0)
        assert server.fail_replica(name) == 1
    server.add_replica("last")
    server.assign(0.0)
    with pytest.raises(RunFailed, match="while the same queries are in flight") as raised:
        server.fail_replica("last")
    assert raised.value.where == "sample 4, of 30 prompt tokens"


def test_all_queries_of_a_repeated_failure_are_named() -> None:
    server = query_table()
    server.issue(range(8), range(8))
    for name in "abc"[: MAX_FAILURES - 1]:
        server.add_replica(name)
        server.assign(0.0)
        server.fail_replica(name)
    server.add_replica("last")
    server.assign(0.0)
    with pytest.raises(RunFailed) as raised:
        server.fail_replica("last")
    assert raised.value.where.startswith("sample 0, of 5 prompt tokens; sample 1, of 9 prompt tokens;")
    assert raised.value.where.endswith("; 3 more")


def test_no_query_is_assigned_without_replicas() -> None:
    server = query_table()
    server.issue([1, 2], [0, 1])
    assert server.assign(0.0) == []
    assert server.waiting == 2


def test_slow_replica_gets_no_queries_at_the_end_of_the_load() -> None:
    offline = query_table(InFlightLimit(batch=10, backlog=0), "fast", "slow")
    offline.issue(range(24), [0] * 24)
    held = {name: [query.id for query in share] for name, share in offline.assign(0.0)}
    offline.finish("fast", held["fast"].pop(), 5, 1.0)
    offline.finish("slow", held["slow"].pop(), 5, 2.0)
    assert [name for name, _ in offline.assign(2.0)] == ["fast"]
    assert offline.waiting == 3
    offline.finish("fast", held["fast"].pop(), 5, 2.0)
    offline.finish("slow", held["slow"].pop(), 5, 2.0)
    offline.issue(range(100, 150), [0] * 50)
    assert [name for name, _ in offline.assign(2.0)] == ["fast", "slow"]
