from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from serving_node.scheduling.cache_index import OVERHEAD_BYTES, CacheIndex

A, B = b"a", b"b"


def test_the_least_recently_used_goes_first() -> None:
    index: CacheIndex[str] = CacheIndex(3 * (OVERHEAD_BYTES + 10))
    for key in (b"1", b"2", b"3"):
        assert index.put(key, key.decode(), 10, A)
    assert index.get(b"1") == "1"
    index.put(b"4", "4", 10, A)
    assert (index.get(b"2"), index.get(b"1"), index.evictions) == (None, "1", 1)


def test_what_is_too_large_changes_nothing() -> None:
    index: CacheIndex[str] = CacheIndex(OVERHEAD_BYTES + 10)
    assert index.put(b"1", "1", 10, A)
    assert not index.put(b"2", "2", 11, A)
    assert not index.put(b"1", "new", 11, A)
    assert (index.get(b"1"), len(index), index.evictions) == ("1", 1, 0)


def test_a_larger_entry_in_place_of_one_makes_room_by_that_too() -> None:
    index: CacheIndex[str] = CacheIndex(2 * OVERHEAD_BYTES + 20)
    index.put(b"1", "1", 10, A)
    index.put(b"2", "2", 10, A)
    assert index.put(b"1", "new", 20 + OVERHEAD_BYTES, B)
    assert (index.get(b"1"), index.get(b"2"), index.used) == ("new", None, index.capacity)


def test_an_owner_is_forgotten_in_portions() -> None:
    index: CacheIndex[int] = CacheIndex(100 * OVERHEAD_BYTES)
    for number in range(10):
        index.put(bytes([number]), number, 0, A if number % 2 else B)
    assert index.forget(A, 3)
    assert not index.forget(A, 3)
    assert [index.get(bytes([number])) for number in range(10)] == [0, None, 2, None, 4, None, 6, None, 8, None]
    assert index.used == 5 * OVERHEAD_BYTES
    assert not index.forget(b"unknown", 3)


_KEYS = st.integers(0, 7).map(lambda number: bytes([number]))
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("get"), _KEYS),
        st.tuples(st.just("put"), _KEYS, st.integers(0, 900), st.sampled_from((A, B))),
        st.tuples(st.just("forget"), st.sampled_from((A, B)), st.integers(1, 5)),
    ),
    max_size=60,
)


@given(capacity=st.integers(1, 4000), steps=_STEPS)
def test_it_does_what_a_list_does(capacity: int, steps: list[tuple[object, ...]]) -> None:
    index: CacheIndex[int] = CacheIndex(capacity)
    naive: list[tuple[bytes, int, int, bytes]] = []  # oldest first: key, entry, cost, owner
    evictions = 0
    for entry, step in enumerate(steps):
        match step:
            case ("get", bytes(key)):
                found = [row for row in naive if row[0] == key]
                naive = [row for row in naive if row[0] != key] + found
                assert index.get(key) == (found[0][1] if found else None)
            case ("put", bytes(key), int(size), bytes(owner)):
                cost = size + OVERHEAD_BYTES
                assert index.put(key, entry, size, owner) == (cost <= capacity)
                if cost <= capacity:
                    naive = [row for row in naive if row[0] != key]
                    while sum(row[2] for row in naive) + cost > capacity:
                        naive.pop(0)
                        evictions += 1
                    naive.append((key, entry, cost, owner))
            case ("forget", bytes(owner), int(at_most)):
                before = sum(row[3] == owner for row in naive)
                assert index.forget(owner, at_most) == (before > at_most)
                owned = {row[0] for row in naive if row[3] == owner}
                kept = {key for key in owned if any(key == held for held in index._held)}
                assert len(owned - kept) == min(before, at_most)
                naive = [row for row in naive if row[3] != owner or row[0] in kept]
        assert index.used == sum(row[2] for row in naive) <= capacity
        assert len(index) == len(naive)
        assert index.evictions == evictions
