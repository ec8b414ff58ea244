"""The code in the guides is that of the stories, which are tested; and the guides know all stories."""

import re
from pathlib import Path

import pytest

from tests.workers import PROJECT

GUIDES = [PROJECT / "docs" / f"{name}.md" for name in ("waiting", "recovery", "parallel")]
STORIES = PROJECT / "tests" / "stories" / "examples"
NO_STORIES = {"__init__", "accounts"}


def named(path: Path) -> str:
    return path.stem


@pytest.mark.parametrize("guide", GUIDES, ids=named)
def test_each_block_is_taken_from_the_file_it_names(guide: Path) -> None:
    blocks = re.findall(r"^```python\n# (\S+)\n(.*?)^```$", guide.read_text(), re.M | re.S)
    assert len(blocks) == guide.read_text().count("```") / 2
    for path, code in blocks:
        source = (PROJECT / path).read_text()
        parts = re.split(r"^\.\.\.\n", code, flags=re.M)
        assert [part for part in parts if f"\n{part}" not in source] == []


@pytest.mark.parametrize("guide", GUIDES, ids=named)
def test_each_link_leads_somewhere(guide: Path) -> None:
    for path, heading in re.findall(r"\]\(([^)#\s]*)(?:#([^)]+))?\)", guide.read_text()):
        target = guide.parent / path if path else guide
        assert target.exists(), path
        if heading:
            headings = re.findall(r"^#+ (.+)$", target.read_text(), re.M)
            assert heading in [re.sub(r"[^\w -]", "", each).lower().replace(" ", "-") for each in headings]


def test_each_story_is_told() -> None:
    told = "".join(guide.read_text() for guide in GUIDES)
    stories = {path.stem for path in STORIES.glob("*.py")} - NO_STORIES
    assert len(stories) == 12
    assert {story for story in stories if f"/{story}.py)" not in told} == set()
