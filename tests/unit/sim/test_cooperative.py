"""How a cooperative group shares partitions out (KIP-429), against plain rules."""

from hypothesis import given
from hypothesis import strategies as st

from ottla.client.assignors import Claim, assign_cooperative
from ottla.model.ids import TopicPartition

TPS = [TopicPartition(topic, p) for topic in "ab" for p in range(4)]
CLAIMS = st.dictionaries(
    st.sampled_from(["m1", "m2", "m3", "m4", "m5"]),
    st.builds(Claim, st.integers(-1, 4), st.frozensets(st.sampled_from(TPS))),
    min_size=1,
)


def next_claims(given_now, generation):
    return {m: Claim(generation, frozenset(tps)) for m, tps in given_now.items()}


@given(CLAIMS)
def test_nobody_is_given_what_another_still_owns(claims):
    given_now = assign_cooperative(TPS, claims)
    assert given_now.keys() == claims.keys()
    everything = [tp for tps in given_now.values() for tp in tps]
    assert len(everything) == len(set(everything))
    for member, tps in given_now.items():
        for tp in tps:
            others = [c for m, c in claims.items() if m != member and tp in c.partitions]
            ours = claims[member]
            age = ours.generation if tp in ours.partitions else -2
            assert all(other.generation < age for other in others)


@given(CLAIMS)
def test_once_all_have_given_up_what_moves_everything_is_shared_out_evenly(claims):
    first = assign_cooperative(TPS, claims)
    second = assign_cooperative(TPS, next_claims(first, 5))
    assert sorted(tp for tps in second.values() for tp in tps) == TPS
    sizes = [len(tps) for tps in second.values()]
    assert max(sizes) - min(sizes) <= 1
    for member, tps in first.items():
        assert set(tps) <= set(second[member]), "what was kept once stays"
    assert assign_cooperative(TPS, next_claims(second, 6)) == second


@given(CLAIMS.filter(lambda claims: len(claims) > 1), st.data())
def test_a_member_that_leaves_moves_nothing_but_its_own(claims, data):
    settled = assign_cooperative(TPS, next_claims(assign_cooperative(TPS, claims), 5))
    gone = data.draw(st.sampled_from(sorted(settled)))
    left = {member: tps for member, tps in settled.items() if member != gone}
    after = assign_cooperative(TPS, next_claims(left, 6))
    assert sorted(tp for tps in after.values() for tp in tps) == TPS
    for member, tps in left.items():
        assert set(tps) <= set(after[member])


def test_a_new_member_gets_its_share_in_the_second_generation():
    alone = {"m1": Claim(1, frozenset(TPS)), "m2": Claim(-1, frozenset())}
    first = assign_cooperative(TPS, alone)
    assert (len(first["m1"]), first["m2"]) == (4, [])
    second = assign_cooperative(TPS, next_claims(first, 2))
    assert second["m1"] == first["m1"]
    assert len(second["m2"]) == 4


def test_what_two_own_by_claims_of_one_age_is_nobodys():
    tp = TPS[0]
    claims = {"m1": Claim(3, frozenset([tp])), "m2": Claim(3, frozenset([tp]))}
    assert assign_cooperative([tp], claims) == {"m1": [], "m2": []}
    claims["m2"] = Claim(4, frozenset([tp]))
    assert assign_cooperative([tp], claims) == {"m1": [], "m2": [tp]}
