"""The customer directory as a Flow: no Step, two RPCs, one AttributeMap partitioned by the hash of the e-mail address.

A caller names the partition it needs (``directory.client`` does), so an RPC loads and locks one bucket out of a
thousand. The handlers compute the partition again: a caller that named another one cannot misplace a profile.
"""

from __future__ import annotations

from typing import Final

import msgspec

from dexflows import AttributeMap, Context, Flow, PersistenceSchema, RPCResult, StepList, register, rpc
from directory.conf import partition_count
from directory.partitioning import email_partition
from directory.profile import CustomerProfile, text_fault

FLOW_ID: Final = "customer-directory"
PROFILES_ATTRIBUTE: Final = "customer_profiles_by_email_partition"


class CustomerDirectoryFlow(Flow[None]):
    """Runs for ever once started and is driven by its RPCs alone."""

    profiles = AttributeMap(PROFILES_ATTRIBUTE, dict[str, CustomerProfile])

    def get_steps(self) -> StepList[None]:
        return StepList.empty()

    def get_persistence_schema(self) -> PersistenceSchema:
        return PersistenceSchema.of(self.profiles)

    @rpc(name="UpsertCustomerProfile")
    def upsert_customer_profile(self, context: Context, profile: CustomerProfile) -> RPCResult[CustomerProfile]:
        """Insert or replace one profile. The caller loads and locks the partition of its address."""
        for text in msgspec.structs.astuple(profile):
            if fault := text_fault(text):
                raise ValueError(fault)
        place = email_partition(profile.email_address, partition_count())
        bucket = self.profiles.get(context, place.instance) or {}
        saved = msgspec.structs.replace(profile, email_address=place.canonical_email)
        bucket[place.canonical_email] = saved
        self.profiles.set(context, place.instance, bucket)
        return RPCResult(saved)

    @rpc(name="GetCustomerProfileByEmail")
    def get_customer_profile_by_email(self, context: Context, address: str) -> RPCResult[CustomerProfile | None]:
        """The profile of one address, or None. The caller loads the partition; nothing is locked."""
        place = email_partition(address, partition_count())
        bucket = self.profiles.get(context, place.instance) or {}
        return RPCResult(bucket.get(place.canonical_email))


customer_directory_flow = register(CustomerDirectoryFlow())
