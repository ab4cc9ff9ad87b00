"""The history to a folder and back: one compressed COPY file a table, and a manifest that says what must be in them. With it
goes what the operator has decided: who is hidden, and what others register; otherwise a restored site would show it again.

Taken in one snapshot of the database while it runs; put back in one transaction, into tables that are still empty, after
every file was found to be whole. Postgres' own pg_dump does as well; this needs no program beside the site.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.hashers import UNUSABLE_PASSWORD_PREFIX
from django.db import connection, transaction
from django.db.migrations.recorder import MigrationRecorder
from psycopg import sql

from swarm.errors import LocalError

KNOWN = ("monitor_watchedmodel", "monitor_serverrow", "monitor_crawl")
REMEMBERED = (
    "monitor_peer",
    "monitor_swarmday",
    "monitor_modelday",
    "monitor_modelhour",
    "monitor_blockday",
    "monitor_peerday",
    "monitor_rolledup",
    "monitor_incident",
    "monitor_modelminute",
    "monitor_peersample",
)
DECIDED: dict[str, str] = {"hiding_hidden": ""}
"""Tables of decisions, each with its column that points at a person, if any: the person goes by name, and comes back without a
password. Others add theirs (`register`)."""

LATER: dict[str, dict[str, str]] = {
    "monitor_watchedmodel": {"at_least": "true"},
    "monitor_serverrow": {"visit_network": "''", "here_since": "first_seen"},
}
"""Columns that must hold something and that older backups lack: what the migration that added each wrote, in SQL. A size
of which a backup does not say where it comes from is no more than what was seen."""

FORM = 1
MANIFEST = "manifest.json"
CHUNK = 1 << 20


def register(table: str, person: str = "") -> None:
    DECIDED[table] = person


def tables() -> tuple[str, ...]:
    """In the order in which they may be filled: what is pointed at comes first."""
    return (*KNOWN, *REMEMBERED, *DECIDED)


@dataclass(frozen=True, slots=True)
class Part:
    """One table in the backup."""

    table: str
    columns: tuple[str, ...]
    rows: int
    sha256: str

    @property
    def file(self) -> str:
        return f"{self.table}.copy.gz"


def take(folder: Path) -> dict[str, int]:
    """Rows by table. The folder must not hold a backup yet: an old one is never half overwritten."""
    if (folder / MANIFEST).exists():
        raise LocalError(f"{folder} holds a backup already; choose an empty folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with transaction.atomic(durable=True), connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            parts = [_take_table(folder, table) for table in tables()]
        manifest = {"form": FORM, "migration": _migration(), "parts": [_as_json(part) for part in parts]}
        # Last: a folder without it is no backup.
        (folder / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise LocalError(f"cannot write the backup to {folder}: {error.strerror}") from error
    return {part.table: part.rows for part in parts}


def put_back(folder: Path) -> dict[str, int]:
    """Rows by table. All of it, or with an error nothing."""
    parts = _read_manifest(folder)
    for part in parts:
        _check_file(folder / part.file, part)
    with transaction.atomic():
        _refuse_filled()
        for part in parts:
            rows = _put_table(folder / part.file, part)
            if rows != part.rows:
                raise LocalError(f"{part.file} holds {rows} rows, and the manifest says {part.rows}")
        _advance_numbers()
    return {part.table: part.rows for part in parts}


def _take_table(folder: Path, table: str) -> Part:
    columns = columns_of(table)
    path = folder / f"{table}.copy.gz"
    person = DECIDED.get(table, "")
    shown = _replaced(columns, person, _person(person)) if person else _names(columns)
    statement = sql.SQL("COPY (SELECT {} FROM {}) TO STDOUT").format(shown, sql.Identifier(table))
    rows = 0
    with connection.cursor() as cursor, gzip.open(path, "wb", compresslevel=6) as out, cursor.copy(statement) as copy:
        for line in copy:
            rows += 1
            out.write(bytes(line))
    return Part(table, columns, rows, _digest(path))


def _person(column: str) -> sql.Composed:
    """The name of whom the column points at."""
    users, name, number = _users()
    return sql.SQL("(SELECT {} FROM {} WHERE {} = {})").format(name, users, number, sql.Identifier(column))


def _users() -> tuple[sql.Identifier, sql.Identifier, sql.Identifier]:
    """The table of people, their name's column and their number's."""
    model = get_user_model()
    number = model._meta.pk.column if model._meta.pk is not None else None
    assert number is not None  # every table of Django's has one
    return sql.Identifier(model._meta.db_table), sql.Identifier(model.USERNAME_FIELD), sql.Identifier(number)


def _put_people(path: Path, part: Part, person: str) -> int:
    """As `_copy_into`, with names in place of numbers. Who is not there yet is made, and cannot log in."""
    given, named = sql.Identifier(f"given_{part.table}"), sql.Identifier(person)
    users, name, number = _users()
    as_text = sql.SQL("''::text AS {}").format(named)
    as_number = sql.SQL("(SELECT {} FROM {} WHERE {} = {}.{})").format(number, users, name, given, named)
    with connection.cursor() as cursor:
        empty = sql.SQL("CREATE TEMP TABLE {} ON COMMIT DROP AS SELECT {} FROM {} WITH NO DATA")
        cursor.execute(empty.format(given, _replaced(part.columns, person, as_text), sql.Identifier(part.table)))
        rows = _copy_into(path, given, part.columns)
        cursor.execute(sql.SQL("SELECT DISTINCT {} FROM {}").format(named, given))
        for (who,) in cursor.fetchall():
            shut_out = {"password": UNUSABLE_PASSWORD_PREFIX, "is_active": False}
            get_user_model().objects.get_or_create(**{get_user_model().USERNAME_FIELD: who}, defaults=shut_out)
        insert = sql.SQL("INSERT INTO {} ({}) SELECT {} FROM {}")
        columns = _replaced(part.columns, person, as_number)
        cursor.execute(insert.format(sql.Identifier(part.table), _names(part.columns), columns, given))
    return rows


def _replaced(columns: tuple[str, ...], column: str, by: sql.Composable) -> sql.Composed:
    return sql.SQL(", ").join(by if name == column else sql.Identifier(name) for name in columns)


def _put_table(path: Path, part: Part) -> int:
    person = DECIDED.get(part.table, "")
    if person:
        return _put_people(path, part, person)
    lacking = {column: made for column, made in LATER.get(part.table, {}).items() if column not in part.columns}
    return _put_older(path, part, lacking) if lacking else _copy_into(path, sql.Identifier(part.table), part.columns)


def _put_older(path: Path, part: Part, lacking: Mapping[str, str]) -> int:
    """As `_copy_into`, with what the columns hold that the backup does not have."""
    given, table, columns = sql.Identifier(f"given_{part.table}"), sql.Identifier(part.table), _names(part.columns)
    made = sql.SQL(", ").join(sql.SQL(expression) for expression in lacking.values())
    with connection.cursor() as cursor:
        empty = sql.SQL("CREATE TEMP TABLE {} ON COMMIT DROP AS SELECT {} FROM {} WITH NO DATA")
        cursor.execute(empty.format(given, columns, table))
        rows = _copy_into(path, given, part.columns)
        insert = sql.SQL("INSERT INTO {} ({}, {}) SELECT {}, {} FROM {}")
        cursor.execute(insert.format(table, columns, _names(tuple(lacking)), columns, made, given))
    return rows


def _copy_into(path: Path, table: sql.Identifier, columns: tuple[str, ...]) -> int:
    statement = sql.SQL("COPY {} ({}) FROM STDIN").format(table, _names(columns))
    with connection.cursor() as cursor, gzip.open(path, "rb") as source:
        with cursor.copy(statement) as copy:
            while chunk := source.read(CHUNK):
                copy.write(chunk)
        return int(cursor.rowcount)


def columns_of(table: str) -> tuple[str, ...]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped"
            " AND attgenerated = '' ORDER BY attnum",
            [table],
        )
        return tuple(name for (name,) in cursor.fetchall())


def _names(columns: tuple[str, ...]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, columns))


def _read_manifest(folder: Path) -> list[Part]:
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        parts = [_from_json(part) for part in manifest["parts"]]
        form, migration = manifest["form"], manifest["migration"]
    except OSError as error:
        raise LocalError(f"there is no backup in {folder}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise LocalError(f"{folder / MANIFEST} is no manifest of a backup") from error
    # A backup from before decisions went with it has none of their tables.
    there = [part.table for part in parts]
    if form != FORM or there not in (list(tables()), [*KNOWN, *REMEMBERED]):
        raise LocalError(f"{folder} was written by another version of Sepal, in another form")
    if migration > _migration():
        raise LocalError(f"the backup is of a newer database ({migration}) than this one ({_migration()}): update Sepal first")
    return parts


def _check_file(path: Path, part: Part) -> None:
    try:
        found = _digest(path)
    except OSError as error:
        raise LocalError(f"{path} is missing from the backup: {error.strerror}") from error
    if found != part.sha256:
        raise LocalError(f"{path} is not what was written: the backup is damaged")


def _refuse_filled() -> None:
    with connection.cursor() as cursor:
        for table in tables():
            cursor.execute(sql.SQL("SELECT EXISTS (SELECT FROM {})").format(sql.Identifier(table)))
            if cursor.fetchone() == (True,):
                raise LocalError(f"{table} is not empty: a backup is put back into a new database, after `migrate`")


def _advance_numbers() -> None:
    """What is numbered from now on must not meet what was put back."""
    with connection.cursor() as cursor:
        for table in tables():
            cursor.execute("SELECT pg_get_serial_sequence(%s, 'id') WHERE %s = ANY(%s)", [table, "id", list(columns_of(table))])
            found = cursor.fetchone()
            if found and found[0]:
                highest = sql.SQL("SELECT setval({}, coalesce(max(id), 1), max(id) IS NOT NULL) FROM {}")
                cursor.execute(highest.format(sql.Literal(found[0]), sql.Identifier(table)))


def _migration() -> str:
    applied: Mapping[tuple[str, str], Any] = MigrationRecorder(connection).applied_migrations()
    return max((name for app, name in applied if app == "monitor"), default="")


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as source:
        while chunk := source.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _as_json(part: Part) -> dict[str, Any]:
    return {"table": part.table, "columns": list(part.columns), "rows": part.rows, "sha256": part.sha256}


def _from_json(part: dict[str, Any]) -> Part:
    return Part(str(part["table"]), tuple(map(str, part["columns"])), int(part["rows"]), str(part["sha256"]))
