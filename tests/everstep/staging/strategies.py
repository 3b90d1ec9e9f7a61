"""Names, files and records for property tests."""

from hypothesis import strategies as st

from everstep.staging.entry import Entry, Record, name_problem

names = (
    st.lists(st.text("ab-.\n\udc80é", min_size=1, max_size=3), min_size=1, max_size=3)
    .map("/".join)
    .filter(lambda name: not name_problem(name))
)
sizes = st.integers(0, 3)
versions = st.sampled_from(["v1", "v2"])
md5s = st.sampled_from(["", "md5"])
entries = st.builds(Entry, names, sizes, versions, st.just("at"), md5s)
records = st.builds(Record, names, sizes, versions, st.sampled_from(["sha-a", "sha-b"]))
