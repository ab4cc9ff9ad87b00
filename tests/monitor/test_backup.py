"""What was exported is what is there after the import, to the last bit; what is damaged or in the way is refused."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection
from django.db.migrations.loader import MigrationLoader

from coordinator.desk.models import IncidentNote, Ruling
from monitor import rulings
from monitor.hiding.models import Hidden, hidden_list
from monitor.history import backup, partitions, rollups, uptime
from monitor.history.minutes import moment
from monitor.history.models import Incident, ModelMinute, Peer
from monitor.models import ServerRow, WatchedModel
from monitor.store import store
from tests.monitor.seeding import NOW, SWARM, failure, online, seed, unreachable
from tests.monitor.test_history import drop_partitions
from tests.swarms import model, peer_id

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]


def a_past() -> None:
    whole = model(3, online("a", 0, 3), online("b", 0, 3))
    seed(whole, at=NOW)
    for after in (60, 120):
        seed(model(3, online("a", 0, 2, None), unreachable("b", 0, 3, "tab\there \\ and 'quotes'")), at=NOW + after)
    store(failure(NOW + 400))
    seed(whole, at=NOW + 500)
    rollups.roll_up(moment(NOW + 500))


def decided() -> None:
    """Someone is hidden, someone quarantined, and an incident has a note."""
    staff = get_user_model().objects.create_user("keeper", password="a long one")
    Hidden.objects.create(kind="name", value="Rude Name", reason="asked for")
    Hidden.objects.create(kind="peer", value=peer_id("a"))
    now, later = moment(NOW), moment(NOW + 90_000)
    common = {"starts_at": now, "ends_at": later, "made_by": staff, "made_at": now}
    Ruling.objects.create(kind="quarantine", subject=peer_id("b"), words="it answers nonsense", **common)
    IncidentNote.objects.create(incident=Incident.objects.earliest("pk"), words="we know", made_by=staff, made_at=now)


def everything() -> dict[str, list[str]]:
    with connection.cursor() as cursor:
        found = {}
        for table in backup.tables():
            cursor.execute(f"SELECT t::text FROM {table} AS t ORDER BY 1")
            found[table] = [row for (row,) in cursor.fetchall()]
        return found


def empty() -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"TRUNCATE {', '.join(backup.tables())} RESTART IDENTITY CASCADE")


@pytest.fixture(autouse=True)
def without_partitions(transactional_db: None) -> Iterator[None]:
    yield
    drop_partitions()


def test_export_and_import_into_an_empty_database_bring_every_row_back(tmp_path: Path) -> None:
    a_past()
    decided()
    partitions.maintain(moment(NOW))
    before = everything()
    assert all(before[table] for table in backup.tables())
    call_command("export_history", str(tmp_path / "backup"))
    empty()
    assert not any(everything().values())
    call_command("import_history", str(tmp_path / "backup"))
    assert everything() == before
    assert uptime.total(uptime.model_days(SWARM, NOW)["tiny-hf"]) == uptime.Tally(watched=4, broken=2)
    assert partitions.strays() == 0

    # Life goes on: new rows get new numbers.
    highest = max(Peer.objects.values_list("pk", flat=True))
    seed(model(3, online("c", 0, 3)), at=NOW + 560)
    assert Peer.objects.get(peer_id=peer_id("c")).pk > highest


def test_who_was_hidden_or_quarantined_is_so_again_after_an_import_into_a_new_database(tmp_path: Path) -> None:
    a_past()
    decided()
    backup.take(tmp_path)
    assert not any("keeper" in path.name or b"a long one" in path.read_bytes() for path in tmp_path.iterdir())
    empty()
    get_user_model().objects.all().delete()
    get_user_model().objects.create_user("someone-else")
    backup.put_back(tmp_path)
    hidden = hidden_list()
    assert hidden.hides("by Rude  name") and peer_id("a") in hidden.peers
    assert rulings.staff().rulings(SWARM, NOW + 600).quarantined.keys() == {peer_id("b")}
    (note,) = rulings.staff().notes(Incident.objects.earliest("pk").pk)
    assert note.words == "we know"
    keeper = get_user_model().objects.get(username="keeper")
    assert Ruling.objects.get().made_by == keeper and not keeper.is_active and not keeper.has_usable_password()


def test_an_older_backup_without_decisions_is_taken_and_says_what_it_lacks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a_past()
    backup.take(tmp_path)
    empty()
    manifest = json.loads((tmp_path / backup.MANIFEST).read_text())
    parts = [part for part in manifest["parts"] if part["table"] not in backup.DECIDED]
    (tmp_path / backup.MANIFEST).write_text(json.dumps({**manifest, "parts": parts}))
    call_command("import_history", str(tmp_path))
    assert "does not say who is hidden" in capsys.readouterr().err


ADDED = {
    "monitor_serverrow": ("visit_network", "here_since"),
    "monitor_watchedmodel": ("at_least",),
    "monitor_peersample": ("cache_tokens",),
    "monitor_modelminute": ("bottleneck_believed",),
    "monitor_modelhour": ("bottleneck_believed_mean",),
    "monitor_peerday": ("block_minutes", "cache_mean", "cache_least"),
}
"""Columns that came after the first form of a backup."""


def as_of_old(folder: Path, table: str, without: tuple[str, ...]) -> None:
    """The file as it was written before there were these columns."""
    manifest = json.loads((folder / backup.MANIFEST).read_text())
    (part,) = (part for part in manifest["parts"] if part["table"] == table)
    kept = [column for column in part["columns"] if column not in without]
    assert len(kept) == len(part["columns"]) - len(without)
    file = folder / f"{table}.copy.gz"
    lines = gzip.decompress(file.read_bytes()).decode().splitlines()
    fields = [dict(zip(part["columns"], line.split("\t"), strict=True)) for line in lines]
    file.write_bytes(gzip.compress("".join("\t".join(row[name] for name in kept) + "\n" for row in fields).encode()))
    part["columns"], part["sha256"] = kept, hashlib.sha256(file.read_bytes()).hexdigest()
    (folder / backup.MANIFEST).write_text(json.dumps(manifest))


def test_a_backup_from_before_some_columns_is_put_back_and_claims_nothing_of_them(tmp_path: Path) -> None:
    a_past()
    ServerRow.objects.update(here_since=moment(NOW + 90))
    assert not WatchedModel.objects.get().at_least
    backup.take(tmp_path)
    empty()
    for table, columns in ADDED.items():
        as_of_old(tmp_path, table, columns)
    call_command("import_history", str(tmp_path))
    assert WatchedModel.objects.get().at_least, "nobody knows where its size comes from"
    assert ServerRow.objects.count() == 2
    assert all(row.here_since == row.first_seen and row.visit_network == "" for row in ServerRow.objects.all())
    assert set(ModelMinute.objects.values_list("bottleneck", "bottleneck_believed")) == {(None, None), (20.0, None)}
    assert uptime.total(uptime.model_days(SWARM, NOW)["tiny-hf"]) == uptime.Tally(watched=4, broken=2)


def test_every_column_that_must_hold_something_can_be_made_where_a_backup_lacks_it() -> None:
    """What the oldest backups have is what the tables had when they were made (migration 0003)."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT table_name, column_name FROM information_schema.columns WHERE table_name = ANY(%s)"
            " AND is_nullable = 'NO' AND column_default IS NULL AND identity_generation IS NULL",
            [[*backup.KNOWN, *backup.REMEMBERED]],
        )
        needed = set(cursor.fetchall())
    made = {(table, column) for table, columns in backup.LATER.items() for column in columns}
    assert made <= needed
    oldest = MigrationLoader(connection).project_state(("monitor", "0003_memory")).apps.get_app_config("monitor").get_models()
    there = {(kind._meta.db_table, field.column) for kind in oldest for field in kind._meta.concrete_fields}
    assert needed - there == made


def test_a_filled_database_is_left_alone(tmp_path: Path) -> None:
    a_past()
    backup.take(tmp_path)
    before = everything()
    with pytest.raises(CommandError, match="is not empty"):
        call_command("import_history", str(tmp_path))
    with pytest.raises(CommandError, match="holds a backup already"):
        call_command("export_history", str(tmp_path))
    assert everything() == before


def test_a_damaged_backup_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    a_past()
    backup.take(tmp_path)
    empty()
    manifest = json.loads((tmp_path / backup.MANIFEST).read_text())
    file = tmp_path / "monitor_peerday.copy.gz"
    whole = file.read_bytes()

    file.write_bytes(gzip.compress(gzip.decompress(whole)[:-20]))
    with pytest.raises(CommandError, match="damaged"):
        call_command("import_history", str(tmp_path))
    file.unlink()
    with pytest.raises(CommandError, match="missing"):
        call_command("import_history", str(tmp_path))
    file.write_bytes(whole)
    for wrong, words in (
        ({"form": 2}, "another form"),
        ({"migration": "9999"}, "newer database"),
        ({"parts": 3}, "no manifest"),
    ):
        (tmp_path / backup.MANIFEST).write_text(json.dumps({**manifest, **wrong}))
        with pytest.raises(CommandError, match=words):
            call_command("import_history", str(tmp_path))
    (tmp_path / backup.MANIFEST).unlink()
    with pytest.raises(CommandError, match="there is no backup"):
        call_command("import_history", str(tmp_path))
    assert not any(everything().values())
