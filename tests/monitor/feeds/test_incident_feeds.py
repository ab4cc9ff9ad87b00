"""Feeds of incidents: valid in form, with ids that stay and `updated` that moves when an incident closes."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from datetime import datetime
from typing import Any

import pytest
from django.test import Client

from monitor.hiding.models import Hidden
from tests.monitor.seeding import NOW, seed
from tests.monitor.test_incidents import one_hole, torn, whole
from tests.swarms import peer_id

pytestmark = pytest.mark.django_db

ATOM = "{http://www.w3.org/2005/Atom}"
IRI = re.compile(r"^[a-z][a-z0-9+.\-]*:\S+$")
JSON_FEED_ITEM = {"id", "url", "title", "content_text", "date_published", "date_modified", "tags"}


def one(element: ET.Element, name: str) -> ET.Element:
    """RFC 4287: exactly one of these."""
    found = element.findall(ATOM + name)
    assert len(found) == 1, f"{len(found)} times <{name}> in {element.tag}"
    return found[0]


def date_in(element: ET.Element, name: str) -> datetime:
    text = one(element, name).text or ""
    moment = datetime.fromisoformat(text)
    assert moment.tzinfo is not None and re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", text)
    return moment


def valid_atom(body: bytes) -> list[ET.Element]:
    """What the RFC demands of a feed and its entries; the entries."""
    feed = ET.fromstring(body)
    assert feed.tag == ATOM + "feed"
    links = {link.get("rel", "alternate"): link.get("href", "") for link in feed.findall(ATOM + "link")}
    assert links["self"].endswith("/incidents.atom") or "/incidents.atom?" in links["self"]
    ids = [one(feed, "id").text or ""]
    assert one(feed, "title").text
    assert one(one(feed, "author"), "name").text, "every entry needs an author, or the feed has one"
    newest = date_in(feed, "updated")
    entries = feed.findall(ATOM + "entry")
    for entry in entries:
        ids.append(one(entry, "id").text or "")
        assert one(entry, "title").text
        assert date_in(entry, "published") <= date_in(entry, "updated") <= newest
        assert all(IRI.match(link.get("href", "")) for link in entry.findall(ATOM + "link"))
        assert entry.find(ATOM + "content") is not None or any(
            link.get("rel", "alternate") == "alternate" for link in entry.findall(ATOM + "link")
        )
        assert all(category.get("term") for category in entry.findall(ATOM + "category"))
    assert all(IRI.match(identifier) for identifier in ids) and len(set(ids)) == len(ids)
    last = list(feed)[-len(entries) :] if entries else []
    assert all(element.tag == ATOM + "entry" for element in last), "what describes the feed stands before its entries"
    return entries


def valid_json_feed(document: dict[str, Any]) -> list[dict[str, Any]]:
    assert document["version"] == "https://jsonfeed.org/version/1.1" and document["title"]
    assert document["feed_url"].startswith("http") and document["home_page_url"].startswith("http")
    for item in document["items"]:
        assert set(item) == JSON_FEED_ITEM and all(isinstance(item[name], str) for name in JSON_FEED_ITEM - {"tags"})
        assert datetime.fromisoformat(item["date_published"]) <= datetime.fromisoformat(item["date_modified"])
    items: list[dict[str, Any]] = document["items"]
    assert len({item["id"] for item in items}) == len(items)
    return items


def test_an_incident_keeps_its_id_and_its_update_moves_when_it_closes(client: Client) -> None:
    for at, make in ((NOW, whole), (NOW + 30, torn), (NOW + 60, torn)):
        seed(make(at), at=at)
    (before,) = valid_atom(client.get("/incidents.atom").content)
    assert "has no server" in (one(before, "title").text or "")
    seed(whole(NOW + 90), at=NOW + 90)
    (after,) = valid_atom(client.get("/incidents.atom").content)
    assert one(before, "id").text == one(after, "id").text
    assert date_in(before, "published") == date_in(after, "published")
    assert date_in(before, "updated") < date_in(after, "updated")
    (item,) = valid_json_feed(client.get("/incidents.json").json())
    assert item["id"] == one(after, "id").text and item["date_modified"] == "2026-09-21T14:14:50Z"
    assert "stopped answering" in item["content_text"]


def test_feeds_say_what_they_are_and_may_be_kept(client: Client) -> None:
    one_hole()
    for path, kind in (("/incidents.atom", "application/atom+xml"), ("/incidents.json", "application/feed+json")):
        answer = client.get(path, headers={"Origin": "https://elsewhere.example"})
        assert answer["Content-Type"].startswith(kind) and "max-age=60" in answer["Cache-Control"]
        assert answer["Access-Control-Allow-Origin"] == "*"
        again = client.get(path, headers={"If-None-Match": answer["ETag"]})
        assert again.status_code == 304 and again.content == b"" and again["ETag"] == answer["ETag"]


def test_a_site_without_incidents_has_valid_feeds(client: Client) -> None:
    answer = client.get("/incidents.atom")
    assert valid_atom(answer.content) == []
    assert client.get("/incidents.atom", headers={"If-None-Match": answer["ETag"]}).status_code == 304
    assert valid_json_feed(client.get("/incidents.json").json()) == []


def test_a_feed_can_be_of_one_model(client: Client) -> None:
    one_hole()
    assert len(valid_json_feed(client.get("/incidents.json?model=tiny-hf").json())) == 1
    assert client.get("/incidents.json?model=never-seen").status_code == 404
    assert client.get("/incidents.atom?swarm=never-seen").status_code == 404


def test_pages_link_to_their_feeds(client: Client) -> None:
    seed(whole(NOW))
    for page in ("/", "/m/tiny-hf", "/incidents"):
        links = re.findall(r'<link rel="alternate" type="([^"]+)"[^>]* href="([^"]+)"', client.get(page).content.decode())
        assert dict(links) == {"application/atom+xml": "/incidents.atom", "application/feed+json": "/incidents.json"}


def test_a_hidden_peer_is_not_named_as_the_one_who_left(client: Client) -> None:
    one_hole()
    Hidden.objects.create(kind="peer", value=peer_id("c"))
    for path in ("/incidents.atom", "/incidents.json"):
        body = client.get(path).content.decode()
        assert peer_id("c")[-6:] not in body and "stopped answering" in body
