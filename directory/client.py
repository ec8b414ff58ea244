"""What callers do with the directory: start it, write a profile, read a profile.

HTTP, the commands and the tests all come through here. Errors are those of ``dexflows.Client.invoke_rpc``, and
``InvalidEmailAddressError`` for an address that has no partition.
"""

from __future__ import annotations

from django.db import transaction

from dexflows import IdReusePolicy, RPCInvokeOptions, StartFlowOptions
from dexflows.client import Client
from directory import schema
from directory.conf import partition_count
from directory.flows import FLOW_ID, customer_directory_flow
from directory.partitioning import email_partition
from directory.profile import CustomerProfile

_START_ONCE = StartFlowOptions(id_reuse_policy=IdReusePolicy.ALLOW_IF_NOT_RUNNING, ignore_already_started=True)
_client = Client()


def start_directory() -> str:
    """Start the directory unless it runs already, record its partition schema with it, and return the run ID."""
    with transaction.atomic():
        schema.record()
        return _client.start_flow(customer_directory_flow, FLOW_ID, options=_START_ONCE)


def upsert_profile(profile: CustomerProfile) -> CustomerProfile:
    """Save one profile under its canonical address and return it as saved.

    Raises ``RpcLockConflictError`` at once when another writer holds the partition: try again later.
    """
    schema.ensure_unchanged()
    profiles = customer_directory_flow.profiles
    instance = email_partition(profile.email_address, partition_count()).instance
    options = RPCInvokeOptions(
        lock_attribute_map_instances=(profiles.lock(instance),),
        load_attribute_map_instances=(profiles.load(instance),),
    )
    saved: CustomerProfile = _client.invoke_rpc(
        customer_directory_flow.upsert_customer_profile, FLOW_ID, profile, options=options
    )
    return saved


def find_profile(address: str) -> CustomerProfile | None:
    """The profile saved under ``address``, whatever its case and outer whitespace, or None."""
    schema.ensure_unchanged()
    instance = email_partition(address, partition_count()).instance
    options = RPCInvokeOptions(load_attribute_map_instances=(customer_directory_flow.profiles.load(instance),))
    found: CustomerProfile | None = _client.invoke_rpc(
        customer_directory_flow.get_customer_profile_by_email, FLOW_ID, address, options=options
    )
    return found
