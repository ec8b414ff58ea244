"""What PostgreSQL's `jsonb` does to a JSON text, for tests without a database."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any


def through_jsonb(text: str) -> str:
    """The text as `select text::jsonb` prints it: keys re-ordered and unique, numbers as `numeric`."""
    return _print(json.loads(text, parse_float=Decimal, parse_int=Decimal, parse_constant=_refuse))


def _refuse(word: str) -> None:
    raise AssertionError(f"jsonb refuses {word}")


def _print(node: Any) -> str:
    match node:
        case bool() | None:
            return json.dumps(node)
        case Decimal():
            return _numeric(node)
        case str():
            assert "\0" not in node
            node.encode()
            return json.dumps(node, ensure_ascii=False)
        case list():
            return f"[{', '.join(map(_print, node))}]"
        case dict():
            keys = sorted(node, key=lambda key: (len(key.encode()), key.encode()))
            return f"{{{', '.join(f'{_print(key)}: {_print(node[key])}' for key in keys)}}}"
    raise AssertionError(node)


def _numeric(number: Decimal) -> str:
    text = f"{number:f}"
    assert len(text.partition(".")[0]) <= 131072
    return text.removeprefix("-") if number == 0 else text
