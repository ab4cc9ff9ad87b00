"""The history: minutes in partitions by day, days, hours, incidents."""

import django.contrib.postgres.fields
import django.db.models.deletion
import django.db.models.expressions
import monitor.history.fields
import monitor.history.minutes
from django.db import migrations, models


# Django cannot make partitioned tables. What it would have made, but partitioned by day; the days are made by
# monitor.history.partitions, and until then rows go to the DEFAULT partition.
MINUTES = """
CREATE TABLE monitor_modelminute (
    model_id bigint NOT NULL REFERENCES monitor_watchedmodel (id) ON DELETE CASCADE,
    ts timestamp with time zone NOT NULL,
    missing int4multirange NOT NULL,
    thin int4multirange NOT NULL,
    unread int4multirange NOT NULL,
    servers integer NOT NULL,
    bottleneck double precision,
    CONSTRAINT model_minute_is_whole CHECK (date_trunc('minute', ts, 'UTC') = ts),
    CONSTRAINT model_minute_block_once CHECK (NOT missing && thin AND NOT missing && unread AND NOT thin && unread),
    CONSTRAINT model_minute_servers CHECK (servers >= 0),
    PRIMARY KEY (model_id, ts)
) PARTITION BY RANGE (ts);
CREATE TABLE monitor_modelminute_default PARTITION OF monitor_modelminute DEFAULT;
CREATE TABLE monitor_peersample (
    model_id bigint NOT NULL REFERENCES monitor_watchedmodel (id) ON DELETE CASCADE,
    ts timestamp with time zone NOT NULL,
    peer_id integer NOT NULL REFERENCES monitor_peer (id) ON DELETE CASCADE,
    start smallint NOT NULL,
    "end" smallint NOT NULL,
    throughput real,
    up boolean,
    state varchar(16) NOT NULL,
    CONSTRAINT peer_sample_minute_is_whole CHECK (date_trunc('minute', ts, 'UTC') = ts),
    CONSTRAINT peer_sample_span_not_empty CHECK ("end" > start AND start >= 0),
    CONSTRAINT peer_sample_state_known
        CHECK (state IN ('online', 'joining', 'leaving', 'unreachable', 'gone', 'not checked')),
    PRIMARY KEY (model_id, peer_id, ts)
) PARTITION BY RANGE (ts);
CREATE TABLE monitor_peersample_default PARTITION OF monitor_peersample DEFAULT;
"""

# A minute is watched or says nothing, and is only one of broken, unknown and thin.
DAYS = """
ALTER TABLE monitor_modelday ADD CONSTRAINT model_day_within_watched CHECK ((broken | thin | unknown) & ~watched = ~(watched | ~watched));
ALTER TABLE monitor_modelday ADD CONSTRAINT model_day_minute_once CHECK (
    (broken & thin) | (broken & unknown) | (thin & unknown) = ~(watched | ~watched));
ALTER TABLE monitor_blockday ADD CONSTRAINT block_day_minute_once CHECK (
    (missing & thin) | (missing & unread) | (thin & unread) = ~(missing | ~missing));
ALTER TABLE monitor_peerday ADD CONSTRAINT peer_day_up_is_known CHECK (up & coalesce(unknown, up & ~up) = up & ~up);
ALTER TABLE monitor_peerday ADD CONSTRAINT peer_day_hours CHECK (cardinality(throughput) = 24);
-- A day's row changes with every roll-up: room on its page keeps the change there.
ALTER TABLE monitor_peerday SET (fillfactor = 90);
"""


class Migration(migrations.Migration):

    dependencies = [
        ('monitor', '0002_truth'),
    ]

    operations = [
        migrations.CreateModel(
            name='Peer',
            fields=[
                ('id', models.AutoField(primary_key=True, serialize=False)),
                ('peer_id', models.CharField(max_length=64, unique=True)),
            ],
        ),
        migrations.CreateModel(
            name='SwarmDay',
            fields=[
                ('pk', models.CompositePrimaryKey('swarm', 'day', blank=True, editable=False, primary_key=True, serialize=False)),
                ('swarm', models.CharField(max_length=64)),
                ('day', models.DateField()),
                ('watched', monitor.history.fields.MinutesField(default=monitor.history.minutes.Minutes)),
                ('last_observed_at', models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name='BlockDay',
            fields=[
                ('pk', models.CompositePrimaryKey('model_id', 'block', 'day', blank=True, editable=False, primary_key=True, serialize=False)),
                ('block', models.SmallIntegerField()),
                ('day', models.DateField(db_index=True)),
                ('missing', monitor.history.fields.MinutesField(default=monitor.history.minutes.Minutes)),
                ('thin', monitor.history.fields.MinutesField(default=monitor.history.minutes.Minutes)),
                ('unread', monitor.history.fields.MinutesField(default=monitor.history.minutes.Minutes)),
                ('model', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='monitor.watchedmodel')),
            ],
        ),
        migrations.CreateModel(
            name='ModelDay',
            fields=[
                ('pk', models.CompositePrimaryKey('model_id', 'day', blank=True, editable=False, primary_key=True, serialize=False)),
                ('day', models.DateField(db_index=True)),
                ('watched', monitor.history.fields.MinutesField(default=monitor.history.minutes.Minutes)),
                ('broken', monitor.history.fields.MinutesField(default=monitor.history.minutes.Minutes)),
                ('thin', monitor.history.fields.MinutesField(default=monitor.history.minutes.Minutes)),
                ('unknown', monitor.history.fields.MinutesField(default=monitor.history.minutes.Minutes)),
                ('model', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='monitor.watchedmodel')),
            ],
        ),
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunSQL(MINUTES, "DROP TABLE monitor_modelminute; DROP TABLE monitor_peersample;"),
            ],
            state_operations=[
                migrations.CreateModel(
                    name='ModelMinute',
                    fields=[
                        ('pk', models.CompositePrimaryKey('model_id', 'ts', blank=True, editable=False, primary_key=True, serialize=False)),
                        ('ts', models.DateTimeField()),
                        ('missing', monitor.history.fields.BlocksField()),
                        ('thin', monitor.history.fields.BlocksField()),
                        ('unread', monitor.history.fields.BlocksField()),
                        ('servers', models.IntegerField(help_text='Online')),
                        ('bottleneck', models.FloatField(help_text='Tokens per second of the slowest block', null=True)),
                        ('model', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='monitor.watchedmodel')),
                    ],
                    options={
                        'db_table': 'monitor_modelminute',
                    },
                ),
                migrations.CreateModel(
                    name='PeerSample',
                    fields=[
                        ('pk', models.CompositePrimaryKey('model_id', 'peer_id', 'ts', blank=True, editable=False, primary_key=True, serialize=False)),
                        ('ts', models.DateTimeField()),
                        ('start', models.SmallIntegerField()),
                        ('end', models.SmallIntegerField()),
                        ('state', models.CharField(help_text='As last seen in this minute', max_length=16)),
                        ('up', models.BooleanField(help_text='Online whenever seen in this minute; empty where it was not checked', null=True)),
                        ('throughput', monitor.history.fields.RealField(null=True)),
                        ('model', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='monitor.watchedmodel')),
                        ('peer', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='monitor.peer')),
                    ],
                    options={
                        'db_table': 'monitor_peersample',
                    },
                ),
            ],
        ),
        migrations.CreateModel(
            name='RolledUp',
            fields=[
                ('id', models.SmallIntegerField(default=1, primary_key=True, serialize=False)),
                ('until', models.DateTimeField()),
            ],
            options={
                'constraints': [models.CheckConstraint(condition=models.Q(('id', 1)), name='rolled_up_is_one_row')],
            },
        ),
        migrations.CreateModel(
            name='Incident',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('swarm', models.CharField(max_length=64)),
                ('kind', models.CharField(choices=[('hole', 'hole'), ('thin', 'thin'), ('blind', 'blind')], max_length=16)),
                ('started_after', models.DateTimeField(help_text='When all was still well; empty where nobody had looked', null=True)),
                ('started_before', models.DateTimeField(help_text='When it was first seen')),
                ('confirmed_at', models.DateTimeField(null=True)),
                ('bad_at', models.DateTimeField(help_text='When it was last seen')),
                ('ended_before', models.DateTimeField(help_text='When it was first seen to be over', null=True)),
                ('blocks', django.contrib.postgres.fields.ArrayField(base_field=models.PositiveSmallIntegerField(), default=list, help_text='All that were ever part of it', size=None)),
                ('current', models.JSONField(default=dict, help_text='Block: [all well at or null, first seen at], in Unix seconds')),
                ('left', models.JSONField(default=list, help_text='Who left: peer_id, how, at, blocks')),
                ('restored', models.JSONField(default=list, help_text='Who came instead: peer_id, blocks')),
                ('reason', models.TextField(blank=True)),
                ('model', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='incidents', to='monitor.watchedmodel')),
            ],
            options={
                'indexes': [models.Index(fields=['swarm', '-id'], name='incident_newest')],
                'constraints': [models.CheckConstraint(condition=models.Q(('kind__in', ['hole', 'thin', 'blind'])), name='incident_kind_known'), models.CheckConstraint(condition=models.Q(models.Q(('kind', 'blind'), ('model__isnull', True)), models.Q(models.Q(('kind', 'blind'), _negated=True), ('model__isnull', False)), _connector='OR'), name='incident_has_a_model'), models.CheckConstraint(condition=models.Q(('started_after__isnull', True), ('started_after__lte', models.F('started_before')), _connector='OR'), name='incident_starts_in_order'), models.CheckConstraint(condition=models.Q(('bad_at__gte', models.F('started_before'))), name='incident_was_seen'), models.CheckConstraint(condition=models.Q(('ended_before__isnull', True), models.Q(('confirmed_at__isnull', False), ('ended_before__gte', models.F('bad_at'))), _connector='OR'), name='incident_ends_in_order'), models.CheckConstraint(condition=models.Q(('kind', 'blind'), ('confirmed_at__isnull', True), models.Q(('blocks', []), _negated=True), _connector='OR'), name='incident_has_blocks'), models.UniqueConstraint(condition=models.Q(('ended_before__isnull', True)), fields=('model', 'kind'), name='incident_one_open_a_kind'), models.UniqueConstraint(condition=models.Q(('ended_before__isnull', True), ('kind', 'blind')), fields=('swarm',), name='incident_one_blindness')],
            },
        ),
        migrations.CreateModel(
            name='ModelHour',
            fields=[
                ('pk', models.CompositePrimaryKey('model_id', 'hour', blank=True, editable=False, primary_key=True, serialize=False)),
                ('hour', models.DateTimeField(db_index=True)),
                ('watched', models.SmallIntegerField()),
                ('broken', models.SmallIntegerField()),
                ('thin', models.SmallIntegerField()),
                ('unknown', models.SmallIntegerField()),
                ('servers_min', models.IntegerField()),
                ('servers_mean', models.FloatField()),
                ('bottleneck_mean', models.FloatField(null=True)),
                ('model', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='monitor.watchedmodel')),
            ],
            options={
                'constraints': [models.CheckConstraint(condition=models.Q(('watched__gte', 1), ('watched__lte', 60)), name='hour_has_sixty_minutes'), models.CheckConstraint(condition=models.Q(('broken__gte', 0), ('thin__gte', 0), ('unknown__gte', 0), ('watched__gte', django.db.models.expressions.CombinedExpression(django.db.models.expressions.CombinedExpression(models.F('broken'), '+', models.F('thin')), '+', models.F('unknown')))), name='hour_adds_up')],
            },
        ),
        migrations.CreateModel(
            name='PeerDay',
            fields=[
                ('pk', models.CompositePrimaryKey('model_id', 'peer_id', 'day', blank=True, editable=False, primary_key=True, serialize=False)),
                ('day', models.DateField(db_index=True)),
                ('up', monitor.history.fields.MinutesField(default=monitor.history.minutes.Minutes)),
                ('unknown', monitor.history.fields.MinutesField(default=None, null=True)),
                ('first_minute', models.SmallIntegerField(help_text='Of this day in which it was in the swarm')),
                ('throughput', django.contrib.postgres.fields.ArrayField(base_field=monitor.history.fields.RealField(null=True), help_text='Tokens per second while up, hour by hour', size=24)),
                ('model', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='monitor.watchedmodel')),
                ('peer', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='monitor.peer')),
            ],
            options={
                'constraints': [models.CheckConstraint(condition=models.Q(('first_minute__gte', 0), ('first_minute__lt', 1440)), name='peer_day_minute')],
            },
        ),
        migrations.RunSQL(DAYS, migrations.RunSQL.noop),
    ]
