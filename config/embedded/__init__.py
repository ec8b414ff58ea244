"""PostgreSQL and Valkey for a checkout that was given no servers: started on demand, shared, stopped by the last user.

How it stays right when processes die at any line:

* A **user** is any process that called `ensure()`. It holds a shared `flock` on `users.lock` until it ends, however
  it ends.
* One **keeper** process per server holds an exclusive `flock` on `keeper.lock`, runs the server as its child, and
  stops it once `users.lock` was free throughout a grace period. It keeps `users.lock` for itself until the server is
  down, so a user who comes at that moment waits, and then starts a new keeper.
* `start.lock` lets one user at a time look whether a keeper is there and start one. `ready.json` counts only while
  the keeper's lock is held. Locks vanish with their process, so there is no stale state to repair but the server's own
  pid file and sockets, which the keeper checks against the process that really has that pid.
* A server whose keeper is killed is told to stop by the kernel (Linux), or by the next keeper (elsewhere).

PostgreSQL refuses to run as root. Started by root it runs as the owner of its data: `postgres` or `nobody`. Where that
user cannot enter the checkout, its files are kept under `/var/lib/dexflows/`.
"""

from pathlib import Path

from config.embedded.leases import EmbeddedServerError, Running, ensure, release
from config.embedded.places import POSTGRES, VALKEY, socket_dir

__all__ = ["POSTGRES", "VALKEY", "EmbeddedServerError", "Running", "broker_url", "ensure", "release"]


def broker_url(state_dir: Path) -> str:
    """Give the address that the embedded broker of this checkout has, or will have once it is started."""
    return f"redis+socket://{socket_dir(state_dir, VALKEY) / 'valkey.sock'}"
