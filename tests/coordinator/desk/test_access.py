"""Nobody but staff gets anything under /admin/; log-ins are throttled; every change is written down; nothing is deleted."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import NoReverseMatch, reverse

from coordinator.desk import housekeeping, throttle
from coordinator.desk.models import IncidentNote, Kind, LogInTry, Ruling
from monitor.history.models import Incident
from monitor.models import Crawl
from tests.coordinator.desk.people import PASSWORD, decided, logged_in, person
from tests.coordinator.desk.test_rulings import now, quarantine_form
from tests.coordinator.seeding import seen
from tests.coordinator.test_hints import HOLED, ask, holed
from tests.swarms import peer_id

pytestmark = pytest.mark.django_db


def addresses() -> list[str]:
    """Every address of the admin that needs no more than an id, whatever is registered there."""
    found = []
    for pattern in admin.site.get_urls():
        for name in [inner.name for inner in getattr(pattern, "url_patterns", [pattern]) if getattr(inner, "name", "")]:
            for arguments in ([], [1], ["1"], [1, "tiny-hf"], ["0" * 8 + "-0000-0000-0000-" + "0" * 12]):
                try:
                    found.append(reverse(f"admin:{name}", args=arguments))
                    break
                except (NoReverseMatch, ValueError):
                    continue
    return [path for path in dict.fromkeys(found) if not path.endswith(("/login/", "/logout/", "/jsi18n/"))]


@pytest.mark.parametrize("who", ["nobody", "somebody who is not staff", "staff that was switched off"])
def test_who_is_not_staff_gets_nothing(who: str, client: Client) -> None:
    seen(HOLED)
    if who != "nobody":
        client = logged_in(staff=who.startswith("staff"))
        User.objects.update(is_active=not who.startswith("staff"))
    paths = addresses()
    assert len(paths) > 40 and "/admin/" in paths and "/admin/desk/quarantine/add/" in paths
    for path in paths:
        for method in (client.get, client.post):
            answer = method(path)
            assert answer.status_code == 302 and answer["Location"].startswith("/admin/login/"), path
    assert not LogEntry.objects.exists()


def test_staff_that_is_no_superuser_does_not_manage_people() -> None:
    client = logged_in()
    assert client.get("/admin/desk/quarantine/").status_code == 200
    assert client.get("/admin/auth/user/").status_code == 403
    assert logged_in("root", superuser=True).get("/admin/auth/user/").status_code == 200


def test_the_admin_s_cookies_are_for_the_admin_and_public_pages_set_none(client: Client) -> None:
    person()
    answer = log_in(client, "ada", PASSWORD)
    assert answer.status_code == 302
    cookie = answer.cookies["sessionid"]
    assert (cookie["path"], cookie["httponly"], cookie["samesite"], cookie["max-age"]) == ("/admin/", True, "Strict", "")
    seen(HOLED)
    public = Client().get("/m/tiny-hf")
    assert not public.cookies, "the theme is read from a cookie; none is set unless somebody chooses"


def test_only_the_admin_has_the_looser_content_policy(client: Client) -> None:
    assert "'unsafe-eval'" in client.get("/admin/login/")["Content-Security-Policy"]
    for path in ("/", "/connect", "/admins"):
        policy = client.get(path)["Content-Security-Policy"]
        assert "unsafe" not in policy and "script-src 'self'" in policy, path
    assert "default-src 'self'" in client.get("/admin/login/")["Content-Security-Policy"]


def log_in(client: Client, name: str, password: str, address: str = "203.0.113.7") -> Any:
    return client.post("/admin/login/?next=/admin/", {"username": name, "password": password}, REMOTE_ADDR=address)


def test_too_many_failed_log_ins_for_a_name_keep_it_out_for_a_while_from_wherever(client: Client) -> None:
    person()
    for turn in range(throttle.TRIES_OF_A_NAME):
        answer = log_in(client, "ada", "wrong", f"203.0.113.{turn}")
        assert "Try again" not in answer.content.decode()
    for password in ("wrong", PASSWORD):
        answer = log_in(client, "Ada", password, "198.51.100.1")
        assert "Too many failed log-ins for this name or from this address. Try again in 15 minutes." in answer.content.decode()
    LogInTry.objects.update(at=now() - throttle.WINDOW)
    assert log_in(client, "ada", PASSWORD).status_code == 302


def test_too_many_failed_log_ins_from_an_address_keep_it_out_whatever_the_name(client: Client) -> None:
    person()
    for turn in range(throttle.TRIES_OF_AN_ADDRESS):
        log_in(client, f"guess {turn}", "wrong")
    assert "Too many failed log-ins" in log_in(client, "ada", PASSWORD).content.decode()
    assert log_in(client, "ada", PASSWORD, "198.51.100.1").status_code == 302


def test_a_refused_try_does_not_make_the_wait_longer() -> None:
    started = now()
    for _ in range(throttle.TRIES_OF_A_NAME):
        throttle.begin("ada", "203.0.113.7", started)
    with pytest.raises(throttle.TooManyTries):
        throttle.begin("ada", "203.0.113.7", started + throttle.WINDOW - timedelta(seconds=1))
    throttle.begin("ada", "203.0.113.7", started + throttle.WINDOW + timedelta(seconds=1))


def test_who_logs_in_is_forgiven_earlier_failures(client: Client) -> None:
    person()
    for _ in range(3):
        for _ in range(throttle.TRIES_OF_A_NAME - 1):
            log_in(client, "ada", "wrong")
        assert log_in(client, "ada", PASSWORD).status_code == 302
    assert not LogInTry.objects.exists()


def test_tries_hold_neither_names_nor_addresses_and_are_forgotten() -> None:
    throttle.begin("my password by mistake", "203.0.113.7", now() - timedelta(days=2))
    row = LogInTry.objects.get()
    assert re.fullmatch(r"[0-9a-f]{32}", row.name) and re.fullmatch(r"[0-9a-f]{32}", row.address)
    housekeeping.tidy(now())
    assert not LogInTry.objects.exists()


FORMS = {
    "quarantine": {"subject": peer_id("a")},
    "maintenance": {"subject": "tiny-hf"},
    "banner": {},
}


@pytest.mark.parametrize("name", FORMS)
def test_every_decision_is_written_down_and_can_be_ended_but_not_deleted(name: str) -> None:
    client = logged_in()
    path = f"/admin/desk/{name}/"
    added = client.post(f"{path}add/", {**quarantine_form(""), **FORMS[name]})
    assert added.status_code == 302, re.findall(r"error[^<]*<[^<]*", added.content.decode())
    ruling = Ruling.objects.get()
    assert ruling.made_by.username == "ada" and ruling.words == "sends wrong tensors"

    changed = client.post(f"{path}{ruling.pk}/change/", {**quarantine_form("something else"), "words": "we know more"})
    assert changed.status_code == 302
    ruling.refresh_from_db()
    assert ruling.words == "we know more" and ruling.subject == FORMS[name].get("subject", "")

    ended = client.post(path, {"action": "end_now", "_selected_action": [ruling.pk]})
    assert ended.status_code == 302
    ruling.refresh_from_db()
    assert ruling.ends_at is not None and ruling.ends_at <= now()

    assert client.post(f"{path}{ruling.pk}/delete/", {"post": "yes"}).status_code == 403
    client.post(path, {"action": "delete_selected", "_selected_action": [ruling.pk], "post": "yes"})
    assert Ruling.objects.count() == 1
    entries = LogEntry.objects.order_by("pk")
    assert [entry.get_change_message() for entry in entries] == ["Added.", "Changed Words.", "Ended."] or len(entries) == 3
    assert {entry.user.username for entry in entries} == {"ada"}
    audit = client.get("/admin/admin/logentry/").content.decode()
    assert audit.count("sends wrong tensors") + audit.count("we know more") >= 3


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"subject": "not a peer id"}, "This does not read as it should"),
        ({"ends_at_0": "2020-01-01"}, "The end lies before the start."),
        ({"ends_at_0": ""}, "This field is required"),
        ({"ends_at_0": "2099-01-01"}, "At most 30 days"),
        ({"words": ""}, "This field is required"),
    ],
)
def test_a_decision_that_makes_no_sense_is_refused_in_words(change: dict[str, str], complaint: str) -> None:
    answer = logged_in().post("/admin/desk/quarantine/add/", {**quarantine_form(peer_id("a")), **change})
    assert answer.status_code == 200 and complaint in answer.content.decode()
    assert not Ruling.objects.exists() and not LogEntry.objects.exists()


def test_a_note_on_an_incident_is_written_down_and_cannot_be_changed() -> None:
    seen(HOLED, ago_s=60)
    seen(HOLED, ago_s=30)
    incident, client = Incident.objects.get(kind="hole"), logged_in()
    form = {
        "notes-TOTAL_FORMS": "1",
        "notes-INITIAL_FORMS": "0",
        "notes-0-words": "A switch failed.",
        "notes-0-incident": incident.pk,
    }
    assert client.post(f"/admin/monitor/incident/{incident.pk}/change/", form).status_code == 302
    note = IncidentNote.objects.get()
    assert note.words == "A switch failed." and note.made_by.username == "ada"
    again = {**form, "notes-INITIAL_FORMS": "1", "notes-0-id": note.pk, "notes-0-words": "Nothing happened."}
    client.post(f"/admin/monitor/incident/{incident.pk}/change/", again)
    note.refresh_from_db()
    assert note.words == "A switch failed." and LogEntry.objects.first().user.username == "ada"  # type: ignore[union-attr]


def test_what_was_seen_can_be_looked_at_and_not_changed() -> None:
    holed()
    ask("c", HOLED.servers[0].span)
    client = logged_in()
    crawl = Crawl.objects.get()
    for path in ("/admin/monitor/crawl/", "/admin/coordinator/lease/", "/admin/monitor/incident/", "/admin/admin/logentry/"):
        assert client.get(path).status_code == 200, path
        assert client.get(f"{path}add/").status_code == 403, path
    assert client.post(f"/admin/monitor/crawl/{crawl.pk}/change/", {"reason": "x"}).status_code == 403
    assert client.post(f"/admin/monitor/crawl/{crawl.pk}/delete/", {"post": "yes"}).status_code == 403


def test_people_who_decided_something_stay_in_the_audit() -> None:
    decided(Kind.BANNER)
    client = logged_in("root", superuser=True)
    assert client.post(f"/admin/auth/user/{person().pk}/delete/", {"post": "yes"}).status_code == 403


def test_the_first_of_the_staff_is_made_on_the_command_line_with_a_password_shown_once(capsys: Any, client: Client) -> None:
    call_command("make_staff", "grace", made_up=True)
    said = capsys.readouterr().out
    password = re.search(r"shown this once: (\S+)", said)
    assert password is not None and "manage the staff" in said
    assert log_in(client, "grace", password[1]).status_code == 302
    assert client.get("/admin/").status_code == 200
    entry = LogEntry.objects.get()
    assert entry.user.username == "grace" and "command line" in entry.get_change_message()
    call_command("make_staff", "ada", made_up=True)
    assert not User.objects.get(username="ada").is_superuser


def test_a_weak_password_is_refused_on_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("getpass.getpass", lambda prompt: "password")
    with pytest.raises(CommandError, match="too short"):
        call_command("make_staff", "ada")
    assert not User.objects.exists()
