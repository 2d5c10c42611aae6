"""The router of replicas: requests go where their beginning is in the cache."""

from __future__ import annotations

import random
from typing import Any

from ray.serve.request_router import PendingRequest, ReplicaID, RequestRouter, RunningReplica

from pagella.serve._prefix import Seen, order

__all__ = ["PrefixRouter"]


class PrefixRouter(RequestRouter):
    """Chooses by the keys that are a request's first argument. It remembers whom it has sent what, and
    asks nobody."""

    def initialize_state(self, **options: int) -> None:
        """`keys_max` beginnings are remembered; a replica may have `slack` requests more than the least
        busy one before its cache counts no more."""
        self._seen: Seen[str] = Seen(options.pop("keys_max", 1_000_000))
        self._slack = options.pop("slack", 8)
        if options:
            raise TypeError(f"the router does not know {', '.join(options)}")

    async def choose_replicas(
        self,
        candidate_replicas: list[RunningReplica],
        pending_request: PendingRequest | None = None,
    ) -> list[list[RunningReplica]]:
        """Every replica, alone in its rank: the best first."""
        keys: list[bytes] = []
        if pending_request is not None:
            pending_request.routing_context.should_backoff = True
            keys = keys_in(pending_request)
        replicas = {one.replica_id.unique_id: one for one in candidate_replicas}
        loads = {name: self._load(one.replica_id) for name, one in replicas.items()}
        depths = self._seen.depths(keys)
        ranked = order(loads, depths, keys[0] if keys else b"", self._slack)
        if not keys:
            # Without a beginning that counts, whoever has least to do.
            random.shuffle(ranked)
            ranked.sort(key=loads.__getitem__)
        return [[replicas[name]] for name in ranked]

    def _load(self, replica: ReplicaID) -> int:
        known = self.replica_queue_len_cache.get(replica)
        return 0 if known is None else int(known)

    def on_request_routed(
        self, pending_request: PendingRequest, replica_id: ReplicaID, result: Any
    ) -> None:
        """Remembers who has the beginning of the request now."""
        self._seen.note(keys_in(pending_request), replica_id.unique_id)


def keys_in(request: PendingRequest) -> list[bytes]:
    """The keys of a request, its first argument."""
    keys = request.args[0] if request.args else None
    return keys if isinstance(keys, list) else []
