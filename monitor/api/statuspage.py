"""The swarm as Statuspage tells of services, for the many tools that read that: a component for each model.

Its vocabulary has no word for "we cannot see". Then nothing is called operational and nothing down: the indicator is `minor`,
the description begins with "Unknown", and components are `under_maintenance`, which no reader counts as downtime.
"""

from __future__ import annotations

import hashlib
from typing import Any, Literal

from django.conf import settings
from django.http import HttpRequest
from ninja import Router
from pydantic import Field

from monitor.api import sight
from monitor.api.typed import Document, Moment, SwarmName
from monitor.history.incidents import confirmed
from monitor.history.models import Incident
from monitor.history.rules import Kind
from monitor.history.words import explanation, title
from monitor.published import Standing, Watch, name_of, rfc3339, standings
from monitor.swarms import named
from swarm.coverage import Verdict

router = Router(tags=["as Statuspage"])

Indicator = Literal["none", "minor", "major", "critical"]
ComponentStatus = Literal["operational", "degraded_performance", "partial_outage", "major_outage", "under_maintenance"]

_COMPONENTS: dict[Verdict, ComponentStatus] = {
    Verdict.COMPLETE: "operational",
    Verdict.THIN: "degraded_performance",
    Verdict.BROKEN: "major_outage",
    Verdict.UNKNOWN: "under_maintenance",
}
_IMPACT: dict[str, Indicator] = {Kind.HOLE.value: "major", Kind.THIN.value: "minor", Kind.BLIND.value: "none"}


class PagePart(Document):
    id: str = Field(examples=["d0e196a0c25d"])
    name: str = Field(examples=["Our swarm"])
    url: str = Field(examples=["https://swarm.example/"])
    time_zone: Literal["Etc/UTC"] = Field(examples=["Etc/UTC"])
    updated_at: Moment | None = Field(description="When the swarm was last seen; null before the first time")


class StatusPart(Document):
    indicator: Indicator = Field(
        description="`none`: every model runs with two servers on each block; `minor`: some run on one server, or it is not"
        " known; `major`: some cannot run; `critical`: none can",
        examples=["none"],
    )
    description: str = Field(examples=["All models run"])


class Component(Document):
    id: str = Field(examples=["5a8dd3c1a2b0"])
    name: str = Field(examples=["Llama-2-70b-hf"])
    status: ComponentStatus = Field(description="`under_maintenance` stands for unknown", examples=["operational"])
    description: str = Field(description="The model in one sentence", examples=["runs; every block has two or more servers"])
    created_at: Moment | None
    updated_at: Moment | None = Field(description="When the status became this")
    position: int = Field(examples=[1], ge=1)
    showcase: bool = Field(examples=[True])
    start_date: None = Field(examples=[None])
    group_id: None = Field(examples=[None])
    page_id: str = Field(examples=["d0e196a0c25d"])
    group: bool = Field(examples=[False])
    only_show_if_degraded: bool = Field(examples=[False])


class IncidentUpdate(Document):
    id: str = Field(examples=["31-1"])
    status: Literal["investigating"] = Field(examples=["investigating"])
    body: str = Field(examples=["The model cannot run."])
    incident_id: str = Field(examples=["31"])
    created_at: Moment
    updated_at: Moment
    display_at: Moment
    affected_components: list[dict[str, str]] = Field(examples=[[]])


class StatuspageIncident(Document):
    id: str = Field(examples=["31"])
    name: str = Field(examples=["Llama-2-70b-hf: blocks 12–17 have no server"])
    status: Literal["investigating"] = Field(examples=["investigating"])
    impact: Indicator = Field(examples=["major"])
    created_at: Moment
    started_at: Moment
    updated_at: Moment
    monitoring_at: None = Field(examples=[None])
    resolved_at: None = Field(examples=[None])
    shortlink: str = Field(examples=["https://swarm.example/incidents/31"])
    page_id: str = Field(examples=["d0e196a0c25d"])
    incident_updates: list[IncidentUpdate]
    components: list[Component]


class Status(Document):
    page: PagePart
    status: StatusPart


class Summary(Status):
    """Open incidents only, as Statuspage has it."""

    components: list[Component] = Field(description="A model each, worst first")
    incidents: list[StatuspageIncident]
    scheduled_maintenances: list[dict[str, str]] = Field(description="Always empty: nobody schedules a swarm", examples=[[]])


@router.get("/status.json", response=Status, summary="One word for the whole swarm, as Statuspage says it")
def status(request: HttpRequest, swarm: SwarmName = "") -> dict[str, Any]:
    return _status(sight.look(request, swarm))


@router.get(
    "/summary.json", response=Summary, summary="The swarm as Statuspage sums it up: models as components, open incidents"
)
def summary(request: HttpRequest, swarm: SwarmName = "") -> dict[str, Any]:
    seen = sight.look(request, swarm)
    page = _page(seen)["id"]
    found = _standings(seen)
    components = [_component(item, position, page) for position, item in enumerate(found, start=1)]
    named_components = {item.model.prefix: component for item, component in zip(found, components, strict=True)}
    open_now = confirmed(seen.swarm).filter(ended_before__isnull=True)
    incidents = [_incident(row, page, named_components) for row in open_now]
    return {**_status(seen), "components": components, "incidents": incidents, "scheduled_maintenances": []}


def overall(seen: Watch) -> tuple[Indicator, str]:
    """The word, and why."""
    if seen.published is None:
        return "minor", "Unknown: the swarm has not been seen yet"
    if not seen.sees:
        why = f": {seen.published.held}" if seen.published.held else ""
        return "minor", f"Unknown: last seen {seen.published.when}{why}"
    verdicts = [item.verdict for item in _standings(seen)]
    broken = verdicts.count(Verdict.BROKEN)
    if not verdicts:
        return "critical", "No model is announced, so none can be used"
    if broken:
        return ("critical" if broken == len(verdicts) else "major"), f"{broken} of {len(verdicts)} models cannot run"
    if Verdict.UNKNOWN in verdicts:
        return "minor", f"Unknown: {verdicts.count(Verdict.UNKNOWN)} of {len(verdicts)} models could not be seen whole"
    thin = verdicts.count(Verdict.THIN)
    return (
        ("minor", f"All models run, {thin} of {len(verdicts)} with a single server on some block")
        if thin
        else ("none", "All models run")
    )


def _standings(seen: Watch) -> list[Standing]:
    return standings(seen.published) if seen.published else []


def _status(seen: Watch) -> dict[str, Any]:
    indicator, description = overall(seen)
    return {"page": _page(seen), "status": {"indicator": indicator, "description": description}}


def _page(seen: Watch) -> dict[str, Any]:
    watched = named(seen.swarm)
    assert watched is not None  # whoever looks at a swarm has named one that is watched
    return {
        "id": _id(seen.swarm),
        "name": watched.label,
        "url": f"{settings.SEPAL_URL}{watched.base}/",
        "time_zone": "Etc/UTC",
        "updated_at": rfc3339(seen.published.snapshot.at) if seen.published else None,
    }


def _component(item: Standing, position: int, page: str) -> dict[str, Any]:
    since = rfc3339(item.since) if item.since is not None else None
    return {
        "id": _id(f"{page}/{item.model.prefix}"),
        "name": name_of(item.model),
        "status": _COMPONENTS[item.verdict],
        "description": item.sentence,
        "created_at": since,
        "updated_at": since,
        "position": position,
        "showcase": True,
        "start_date": None,
        "group_id": None,
        "page_id": page,
        "group": False,
        "only_show_if_degraded": False,
    }


def _incident(row: Incident, page: str, components: dict[str, dict[str, Any]]) -> dict[str, Any]:
    began, last = (rfc3339(moment.timestamp()) for moment in (row.started_before, row.bad_at))
    touched = [components[row.model.prefix]] if row.model and row.model.prefix in components else []
    update = {
        "id": f"{row.pk}-1",
        "status": "investigating",
        "body": explanation(row),
        "incident_id": str(row.pk),
        "created_at": began,
        "updated_at": last,
        "display_at": began,
        "affected_components": [],
    }
    return {
        "id": str(row.pk),
        "name": title(row),
        "status": "investigating",
        "impact": _IMPACT[row.kind],
        "created_at": began,
        "started_at": began,
        "updated_at": last,
        "monitoring_at": None,
        "resolved_at": None,
        "shortlink": f"{settings.SEPAL_URL}/incidents/{row.pk}",
        "page_id": page,
        "incident_updates": [update],
        "components": touched,
    }


def _id(name: str) -> str:
    """Statuspage names things by twelve letters; ours stay the same for ever."""
    return hashlib.sha256(name.encode()).hexdigest()[:12]
