"""The slowest block as far as its servers are believed, beside what they report. Nobody knows it of what came before."""

from django.contrib.postgres.fields import ArrayField
from django.db import migrations, models

from monitor.history.fields import RealField

# Partitions get the column with their parent. A backup from before these columns is put back without them: they may be empty.
MINUTES = "ALTER TABLE monitor_modelminute ADD COLUMN bottleneck_believed double precision;"


class Migration(migrations.Migration):

    dependencies = [
        ('monitor', '0012_at_least'),
    ]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunSQL(MINUTES, 'ALTER TABLE monitor_modelminute DROP COLUMN bottleneck_believed;'),
            ],
            state_operations=[
                migrations.AddField(
                    model_name='modelminute',
                    name='bottleneck_believed',
                    field=models.FloatField(help_text='The same as far as each server was believed then', null=True),
                ),
            ],
        ),
        migrations.AddField(
            model_name='modelhour',
            name='bottleneck_believed_mean',
            field=models.FloatField(help_text='As far as they were believed; empty: not reckoned then', null=True),
        ),
        migrations.AlterField(
            model_name='modelhour',
            name='bottleneck_mean',
            field=models.FloatField(help_text='As servers report it', null=True),
        ),
        migrations.AlterField(
            model_name='modelminute',
            name='bottleneck',
            field=models.FloatField(help_text='Tokens per second of the slowest block, as its servers report them', null=True),
        ),
        migrations.AlterField(
            model_name='peersample',
            name='throughput',
            field=RealField(help_text='Tokens per second, as its record says', null=True),
        ),
        migrations.AlterField(
            model_name='peerday',
            name='throughput',
            field=ArrayField(
                base_field=RealField(null=True), help_text='Tokens per second while up, as it says, hour by hour', size=24
            ),
        ),
    ]
