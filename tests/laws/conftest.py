"""The layers that every law is tried on; models join by giving cases of their own."""

import pytest
from law_cases import Case, cases


@pytest.fixture(params=cases(), ids=str, scope="session")
def case(request: pytest.FixtureRequest) -> Case:
    """A registered layer with settings, in one form; `situation.layer(case)` builds it."""
    return request.param
