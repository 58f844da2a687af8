"""A follower against the plain definition of "caught up"; the bounds of the watermark."""

from hypothesis import given
from hypothesis import strategies as st

from ottla.replication import isr as rules
from ottla.replication.isr import NEVER, Follower, IsrState

LAG = 10

steps = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 4), st.integers(1, 8)), min_size=1, max_size=40
)


@given(steps)
def test_caught_up_is_what_it_means(moves):
    """A follower was caught up at t if it has by now asked for the leader's end of time t."""
    follower = Follower(2)
    now, end, at = 0, 0, 0
    fetches = []
    for appended, fetched, later in moves:
        now += later
        at = min(end, at + fetched)
        follower.observe(at, 0, now, end, -1)
        fetches.append((now, at, end))
        end += appended
    expected = NEVER
    for when, _, leader_end in fetches:
        if any(later >= when and offset >= leader_end for later, offset, _ in fetches):
            expected = when
    # Kafka's rule looks one fetch back, so it may know less, never more.
    assert follower.last_caught_up_ms <= expected
    last_when, last_at, last_end = fetches[-1]
    if last_at >= last_end:
        assert follower.last_caught_up_ms == last_when


followers = st.lists(
    st.tuples(st.integers(-1, 20), st.integers(-100, 100), st.booleans()), max_size=4
)


@given(st.integers(0, 20), followers, st.sets(st.integers(2, 5)))
def test_the_watermark_is_in_every_log_that_counts(end, states, isr):
    made = []
    for broker, (offset, caught_up, _) in enumerate(states, start=2):
        f = Follower(broker)
        f.log_end_offset = min(offset, end)
        f.last_caught_up_ms = caught_up
        made.append(f)
    alive = {f.broker_id for f, s in zip(made, states, strict=True) if s[2]}
    maximal = (1, *sorted(isr))
    mark = rules.high_watermark(end, made, maximal, 100, LAG, alive)
    assert mark <= end
    for f in made:
        if f.broker_id in isr:
            assert mark <= f.log_end_offset
    smaller = rules.high_watermark(end, made, (1,), 100, LAG, alive)
    assert smaller >= mark  # a larger ISR only ever holds it back (R7)


members = st.lists(st.integers(1, 6), min_size=1, max_size=5, unique=True)


@given(members, st.data())
def test_a_proposal_never_lets_the_watermark_run_ahead(isr, data):
    state = IsrState.of(isr)
    if data.draw(st.booleans()):
        outside = [b for b in range(1, 8) if b not in isr]
        changed = state.expand(data.draw(st.sampled_from(outside)))
    else:
        changed = state.shrink(data.draw(st.sets(st.sampled_from(isr), min_size=1)))
    assert set(changed.maximal) >= set(changed.committed) | set(state.maximal)
    assert changed.proposed is not None
    assert set(changed.maximal) >= set(changed.proposed)
    assert changed.back() == state
