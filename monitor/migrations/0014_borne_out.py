"""What each server has borne out of its model's size, so that it falls with those who are ruled out."""

from django.db import migrations, models

# Of what was seen before, the last answer is known.
ANSWERED = """
UPDATE monitor_serverrow SET borne_out = coalesce(visit_end, "end") WHERE visit_outcome = 'answered'
"""


class Migration(migrations.Migration):

    dependencies = [
        ('monitor', '0013_believed_bottleneck'),
    ]

    operations = [
        migrations.AddField(
            model_name='serverrow',
            name='borne_out',
            field=models.PositiveIntegerField(
                help_text='The most blocks of the model that it has answered for, up to the last of them', null=True
            ),
        ),
        migrations.RunSQL(ANSWERED, migrations.RunSQL.noop),
    ]
