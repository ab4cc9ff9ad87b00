"""The history to a folder and back: one compressed COPY file a table, and a manifest that says what must be in them.

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
TABLES = (*KNOWN, *REMEMBERED)
"""In the order in which they may be filled: what is pointed at comes first."""

FORM = 1
MANIFEST = "manifest.json"
CHUNK = 1 << 20


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
            parts = [_take_table(folder, table) for table in TABLES]
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
    statement = sql.SQL("COPY (SELECT {} FROM {}) TO STDOUT").format(_names(columns), sql.Identifier(table))
    rows = 0
    with connection.cursor() as cursor, gzip.open(path, "wb", compresslevel=6) as out, cursor.copy(statement) as copy:
        for line in copy:
            rows += 1
            out.write(bytes(line))
    return Part(table, columns, rows, _digest(path))


def _put_table(path: Path, part: Part) -> int:
    statement = sql.SQL("COPY {} ({}) FROM STDIN").format(sql.Identifier(part.table), _names(part.columns))
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
    if form != FORM or [part.table for part in parts] != list(TABLES):
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
        for table in TABLES:
            cursor.execute(sql.SQL("SELECT EXISTS (SELECT FROM {})").format(sql.Identifier(table)))
            if cursor.fetchone() == (True,):
                raise LocalError(f"{table} is not empty: a backup is put back into a new database, after `migrate`")


def _advance_numbers() -> None:
    """What is numbered from now on must not meet what was put back."""
    with connection.cursor() as cursor:
        for table in TABLES:
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
