"""The pages that are made from the code are as the code makes them."""

import pytest

from tests.docs.reference import FOLDER, PAGES


@pytest.mark.parametrize("page", PAGES)
def test_a_page_that_is_made_from_the_code_is_up_to_date(page: str) -> None:
    assert (FOLDER / page).read_text() == PAGES[page](), "write it anew: python -m tests.docs.reference"
