"""The awkward values that all tests share are kept by the codec, and those to be refused are."""

from __future__ import annotations

from typing import Any

import pytest

from dexflows.codec import codec_for
from dexflows.errors import ValueMappingError
from tests.awkward import REFUSED, VALUES, called, same
from tests.language.jsonb import through_jsonb


@pytest.mark.parametrize(("declared", "value"), VALUES, ids=[called(*each) for each in VALUES])
def test_an_awkward_value_comes_back_the_same(declared: Any, value: Any) -> None:
    codec = codec_for(declared)
    text = codec.encode(value)
    assert same(codec.decode(text), value)
    assert same(codec.decode(through_jsonb(text)), value)


@pytest.mark.parametrize(("declared", "value"), REFUSED, ids=[called(*each) for each in REFUSED])
def test_what_cannot_be_kept_is_refused_with_its_path(declared: Any, value: Any) -> None:
    with pytest.raises(ValueMappingError) as refused:
        codec_for(declared).encode(value)
    assert refused.value.path.startswith("$")
