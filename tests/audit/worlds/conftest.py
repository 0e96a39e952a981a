"""What all tests of audits of own code share."""

from __future__ import annotations

from functools import cache

import pytest
from dpfl_audit.audit.worlds import source


@pytest.fixture(scope="session", autouse=True)
def modules_stay_where_they_are() -> None:
    """A command looks for the files of 3,000 modules, a second each time."""
    source._file_of = cache(source._file_of)
