"""The first line of a docstring is a noun phrase or a verb in the third person: no question, and no order.

"What is kept of it" leaves a newcomer to guess what a function returns; "The node that stores a retry" does not. A
property that is a bool is "True if ...".
"""

import re

from tests.house.project import ROOT, modules

QUESTIONS = "How|That|What|When|Where|Whether|Which|Who|Why"
ORDERS = (  # verbs that are no nouns at the start of a phrase, as "Commit timestamp" and "Record schemas" are
    "Accept|Add|Answer|Apply|Ask|Begin|Build|Call|Check|Choose|Close|Compare|Convert|Count|Create|Cut|Decode|Delete|"
    "Describe|Draw|Drop|Encode|End|Fail|Fill|Find|Forget|Generate|Get|Give|Hold|Inject|Insert|Keep|Let|Load|Look|Make|"
    "Measure|Merge|Move|Parse|Plan|Print|Raise|Register|Release|Remove|Replace|Reset|Return|Run|Send|Serve|Show|Sort|"
    "Split|Start|Stop|Store|Take|Turn|Use|Wait|Write|Yield"
)
_OPENING = re.compile(rf'^ *r?"""((?:{QUESTIONS}|{ORDERS})\b.*)', re.MULTILINE)


def openings(source: str) -> list[str]:
    """The first lines of docstrings that begin with a question or an order."""
    return _OPENING.findall(source)


def test_a_question_and_an_order_are_found_and_a_noun_and_a_third_person_are_not() -> None:
    for bad in ("Whether it is open.", "Return the rows."):
        assert openings(f'    """{bad}\n') == [bad]
    for good in ("Whatever it is.", "The rows.", "Returns the rows.", "Commit timestamp."):
        assert openings(f'    """{good}\n') == []


def test_a_docstring_begins_with_a_noun_phrase_or_a_verb_in_the_third_person() -> None:
    found = [f"{path}: {line}" for path in modules() for line in openings((ROOT / path).read_text())]
    assert found == [], "say what the thing is, or what it does: 'The ...', 'True if ...', 'Returns ...'"
