"""The Flow of the example that users meet first, registered for the worker processes of stories, not for tests."""

from dexflows import register
from tests.language.test_spec_example import ReviewFlow

review_flow = register(ReviewFlow())
