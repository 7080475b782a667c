"""The page of troubleshooting has each message of the code, and each has a remedy."""

import re

from tests.docs.messages.catalogue import alarms, error_kinds, errors, logged
from tests.docs.messages.page import messages
from tests.docs.messages.remedies import OF_ACTIONS, OF_ERRORS


def test_each_message_is_on_the_page() -> None:
    page = re.sub(r"[\\`]", "", messages())
    for one in (*errors(), *alarms(), *logged()):
        words = [" ".join(part.split()) for part in re.sub(r"[\\`]", "", one.text.replace("|", "")).split("…")]
        assert max(words, key=len) in page.replace("|", ""), one


def test_each_message_has_a_remedy_of_its_own_or_of_its_class_or_action_and_no_remedy_is_left_over() -> None:
    assert {one.kind for one in logged()} == OF_ACTIONS.keys()
    assert {one.kind for one in errors()} <= OF_ERRORS.keys() <= error_kinds().keys()


def test_texts_are_found_where_a_name_stands_for_them_and_in_both_branches() -> None:
    texts = {one.text for one in errors()}
    assert "the stream was resumed meanwhile" in texts  # a literal
    assert any("corrupt file …" in text for text in texts)  # something put in
    assert {one.kind for one in alarms()} >= {"clock_off", "dead_letters", "sink_restarted"}
    (restarted,) = (one for one in alarms() if one.kind == "sink_restarted")
    assert restarted.text == "the sink was restarted … times, last at …, after: …"
