"""The public JSON about models: one flat object each. Unknown is null, never 0 and never NaN; nothing here holds an address."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from monitor.extensions import registered
from monitor.published import (
    Published,
    Standing,
    Watch,
    as_of_now,
    beliefs,
    coverage_as_of_now,
    rfc3339,
    server_as_of_now,
    standing,
    standings,
)
from monitor.rates.documents import canary_document, rate_fields
from monitor.serving import cache_left_of, shown_state, version_of
from swarm.coverage import Coverage
from swarm.snapshot import Server
from swarm.throughput import Belief
from swarm.wire.spans import Span


def models_document(seen: Watch) -> dict[str, Any]:
    """Every model, worst first, and how far the monitor itself may be believed."""
    published = seen.published
    last = seen.last_crawl
    others = _of_others(published, [model.prefix for model in published.snapshot.models]) if published else {}
    return {
        "items": [_document(published, item, others[item.model.prefix]) for item in standings(published)] if published else [],
        "observed_at": rfc3339(published.snapshot.at) if published else None,
        "snapshot_id": published.snapshot_id if published else None,
        "stale": not seen.sees,
        "held": published.held or None if published else None,
        "expected_interval_s": seen.interval_s,
        "last_crawl": {
            "succeeded": not last.failure and not last.held,
            "held": bool(last.held),
            "reason": last.failure or last.held or None,
            "confirmed": last.confirmed or None,
            "finished_at": rfc3339(last.finished_at),
            "bootstraps_up": last.bootstraps_up,
            "bootstraps": len(last.bootstraps),
            "bootstrap_addresses": [
                {
                    "peer_id": state.peer_id,
                    "family": state.family,
                    "endpoint": state.endpoint,
                    "step": state.step,
                    "detail": state.detail or None,
                }
                for state in last.addresses
            ],
            "split": last.split or None,
            "overran": seen.overrun,
            "keys_unread": last.keys_unread,
            "dropped": dict(last.dropped),
        }
        if last
        else None,
    }


def one_model_document(seen: Watch, prefix: str) -> dict[str, Any] | None:
    model = seen.published.snapshot.model(prefix) if seen.published else None
    return model_document(seen.published, standing(seen.published, model)) if seen.published and model else None


def model_document(published: Published, item: Standing) -> dict[str, Any]:
    prefix = item.model.prefix
    return _document(published, item, _of_others(published, [prefix])[prefix])


def _of_others(published: Published, prefixes: list[str]) -> dict[str, dict[str, Any]]:
    """What others add to the documents of these models: a fixed number of reads, however many there are."""
    found = {extension.key: extension.documents(published.snapshot.swarm, prefixes) for extension in registered()}
    return {prefix: {key: told[prefix] for key, told in found.items()} for prefix in prefixes}


def _document(published: Published, item: Standing, others: Mapping[str, Any]) -> dict[str, Any]:
    model = as_of_now(published, item.model)
    covered = coverage_as_of_now(published, item.model)
    believed = beliefs(published, model)
    servers = [*item.model.servers, *published.absent.get(model.prefix, ())]
    return {
        "swarm": published.snapshot.swarm,
        "prefix": model.prefix,
        "repository": model.repository,
        "num_blocks": model.num_blocks,
        "size_known": not model.at_least,
        "conflict": model.conflict or None,
        "verdict": item.verdict.value,
        "sentence": item.sentence,
        "since": rfc3339(item.since) if item.since is not None else None,
        **_coverage(covered),
        "route": route_document(item),
        "when_last_seen": {"verdict": item.coverage.verdict.value, **_coverage(item.coverage)} if item.stale else None,
        "servers": [server_document(published, model.prefix, server, believed) for server in servers],
        "canary": canary_document(published.canaries.get(model.prefix)),
        **others,
        "observed_at": rfc3339(published.snapshot.at),
        "snapshot_id": published.snapshot_id,
        "stale": item.stale,
        "held": published.held or None,
        "expected_interval_s": published.interval_s,
    }


def _coverage(covered: Coverage) -> dict[str, Any]:
    slowest = covered.bottleneck
    return {
        "holes": _pairs(covered.holes),
        "thin": _pairs(covered.thin),
        "unread": _pairs(covered.unread),
        "min_redundancy": covered.min_redundancy,
        "one_operator": _pairs(covered.together),
        "bottleneck": {
            "block": slowest.index,
            "throughput_tokens_per_second": slowest.throughput,
            "reported_tokens_per_second": slowest.reported,
        }
        if slowest
        else None,
        "blocks": [block.redundancy for block in covered.blocks],
    }


def server_document(published: Published, prefix: str, server: Server, believed: Mapping[str, Belief]) -> dict[str, Any]:
    """`believed` are the rates of this model's servers (`published.beliefs`). While nobody sees the swarm, it counts as not
    checked."""
    sighting = published.sightings.get((prefix, server.peer_id))
    return {
        "peer_id": server.peer_id,
        "public_name": server.record.public_name,
        "state": shown_state(server_as_of_now(published, server)),
        "state_since": rfc3339(sighting.state_since) if sighting and not published.stale else None,
        "state_when_last_seen": shown_state(server) if published.stale else None,
        "last_seen": rfc3339(sighting.last_seen) if sighting else None,
        "start": server.span.start,
        "end": server.span.end,
        "throughput_tokens_per_second": server.record.throughput,
        "cache_tokens_left": cache_left_of(server),
        "version": version_of(server),
        "using_relay": server.record.using_relay,
        "conflict": server.conflict or None,
        "quarantined": server.quarantined or None,
        "clock_skew_s": server.skew_s,
        "reachability": _reachability(server),
        **rate_fields(published, prefix, server.peer_id, believed),
    }


def _reachability(server: Server) -> dict[str, Any] | None:
    visit = server.visit
    if visit is None:
        return None
    return {
        "outcome": visit.outcome.value,
        "detail": visit.detail,
        "asked_at": rfc3339(visit.at),
        "asked_for": [visit.span.start, visit.span.end] if visit.span else None,
        "addresses_tried": list(visit.addresses),
        "via": visit.via or None,
    }


def route_document(item: Standing) -> dict[str, Any]:
    """A client's view: would a request find its way from the first block to the last, through servers with room for it?"""
    return {
        "exists": None if item.stale or item.route.unknown else item.route.exists,
        "servers": [] if item.stale else list(item.route.peers),
        "words": "not known: the swarm is not seen now" if item.stale else item.route.words,
    }


def _pairs(spans: Iterable[Span]) -> list[list[int]]:
    return [[span.start, span.end] for span in spans]
