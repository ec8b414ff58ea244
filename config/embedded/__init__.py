"""stub"""
from pathlib import Path
VALKEY = "valkey"
def broker_url(state_dir: Path) -> str:
    return f"redis+socket://{state_dir}/valkey.sock"
def ensure(service: str, state_dir: Path) -> None: ...
