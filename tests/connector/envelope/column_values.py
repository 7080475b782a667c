"""Type objects and JSON values for the tests of the envelopes."""

from hypothesis import strategies as st


def array_of(element: str) -> str:
    """The type object of an array."""
    return f'{{"array_element_type":{element},"code":"ARRAY"}}'


def simple(code: str) -> str:
    """The type object of a code without an annotation."""
    return f'{{"code":"{code}"}}'


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
