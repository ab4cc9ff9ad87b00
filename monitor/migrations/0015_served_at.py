from django.db import migrations, models

# What the history still knows of it, and who is online now.
KNOWN = """
UPDATE monitor_watchedmodel AS model SET served_at = greatest(
  (SELECT max(ts) FROM monitor_modelminute WHERE model_id = model.id AND servers > 0),
  (SELECT max(hour) FROM monitor_modelhour WHERE model_id = model.id AND servers_mean > 0),
  (SELECT max(observed_at) FROM monitor_serverrow WHERE model_id = model.id AND state = 'online'))
"""


class Migration(migrations.Migration):

    dependencies = [
        ('monitor', '0014_borne_out'),
    ]

    operations = [
        migrations.AddField(
            model_name='watchedmodel',
            name='served_at',
            field=models.DateTimeField(help_text='When a server of it was last online; empty: never yet', null=True),
        ),
        migrations.RunSQL(KNOWN, migrations.RunSQL.noop),
    ]
