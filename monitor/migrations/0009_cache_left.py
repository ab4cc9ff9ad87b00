"""How much cache servers had left: in the minutes, and hour by hour in the days."""

import django.contrib.postgres.fields
from django.db import migrations, models

# Partitions get the column with their parent. A backup from before these columns is put back without them, so each of them
# may be empty or has a default in the database.
MINUTES = """
ALTER TABLE monitor_peersample ADD COLUMN cache_tokens integer
    CONSTRAINT peer_sample_cache CHECK (cache_tokens >= 0);
"""
DAYS = """
ALTER TABLE monitor_peerday ADD CONSTRAINT peer_day_cache_hours
    CHECK (cardinality(cache_mean) = 24 AND cardinality(cache_least) = 24);
ALTER TABLE monitor_peerday ALTER COLUMN block_minutes SET DEFAULT array_fill(0, ARRAY[24]);
"""
BACK = """
ALTER TABLE monitor_peerday DROP CONSTRAINT peer_day_cache_hours;
ALTER TABLE monitor_peerday ALTER COLUMN block_minutes DROP DEFAULT;
"""


def hours(help_text):
    return django.contrib.postgres.fields.ArrayField(
        base_field=models.IntegerField(null=True), help_text=help_text, null=True, size=24
    )


class Migration(migrations.Migration):

    dependencies = [
        ('monitor', '0008_newest_by_number'),
    ]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunSQL(MINUTES, 'ALTER TABLE monitor_peersample DROP COLUMN cache_tokens;'),
            ],
            state_operations=[
                migrations.AddField(
                    model_name='peersample',
                    name='cache_tokens',
                    field=models.IntegerField(help_text='Of a session, that its cache had room for; the least while online', null=True),
                ),
            ],
        ),
        migrations.AddField(
            model_name='peerday',
            name='cache_mean',
            field=hours('Tokens that it had room for, hour by hour'),
        ),
        migrations.AddField(
            model_name='peerday',
            name='cache_least',
            field=hours('The least of each hour; empty: never said'),
        ),
        migrations.RunSQL(DAYS, BACK),
    ]
