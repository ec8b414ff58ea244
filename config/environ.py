"""Reads the environment variables that configure the project. `docs/configuration.md` lists them."""

import os
import secrets
from pathlib import Path

TRUE_WORDS = frozenset({"1", "true", "yes", "on"})


def text(name: str, default: str = "") -> str:
    """Give the variable's value, or the default where it is unset or empty."""
    return os.environ.get(name, "").strip() or default


def flag(name: str, *, default: bool = False) -> bool:
    """Read a variable as a yes or no."""
    value = text(name)
    return value.lower() in TRUE_WORDS if value else default


def number(name: str, default: int) -> int:
    """Read a variable as a whole number."""
    return int(text(name, str(default)))


def words(name: str, default: str = "") -> list[str]:
    """Read a variable as a comma-separated list."""
    return [word.strip() for word in text(name, default).split(",") if word.strip()]


def secret_key(state_dir: Path) -> str:
    """Give SECRET_KEY, or a random key made once for this checkout and kept in `.dexflows/`."""
    if given := text("SECRET_KEY"):
        return given
    path = state_dir / "secret-key"
    state_dir.mkdir(mode=0o755, parents=True, exist_ok=True)
    # Two processes may start at the same moment: the link makes the key appear whole, once, for both.
    draft = path.with_name(f"secret-key.{os.getpid()}.{secrets.token_hex(4)}")
    if not path.exists():
        draft.touch(mode=0o600)
        draft.write_text(secrets.token_urlsafe(64))
        try:
            os.link(draft, path)
        except FileExistsError:
            pass
        finally:
            draft.unlink()
    return path.read_text()
