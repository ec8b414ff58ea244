"""Changing the settings of a running run."""

from uuid import UUID

import msgspec

from dexflows import sql
from dexflows.conf import conf
from dexflows.engine.closing import check_running
from dexflows.engine.starting import check_config
from dexflows.options import FlowConfig

UPDATE = "SELECT * FROM dexflows_update_config(%s, %s, %s::jsonb)"


def update_config(flow_id: str, run_id: UUID | None, changes: FlowConfig) -> None:
    """Merge the settings that are not None. Raises FlowNotActiveOrNotFoundError when no run is running."""
    check_config(changes)
    text = msgspec.json.encode(changes.to_json()).decode()
    check_running(flow_id, *sql.call(conf().database, UPDATE, (flow_id, run_id, text))[0])
