from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('monitor', '0010_answers'),
    ]

    operations = [
        migrations.AddField(
            model_name='serverrow',
            name='here_since',
            field=models.DateTimeField(
                help_text='Since when it is here without a break: it begins anew after it was gone', null=True
            ),
        ),
        # Nobody has kept since when they are back: as long as they are known, which is what was reckoned with before.
        migrations.RunSQL('UPDATE monitor_serverrow SET here_since = first_seen', migrations.RunSQL.noop),
        # The update's triggers have to be done before the table is altered.
        migrations.RunSQL('SET CONSTRAINTS ALL IMMEDIATE', migrations.RunSQL.noop),
        migrations.AlterField(
            model_name='serverrow',
            name='here_since',
            field=models.DateTimeField(help_text='Since when it is here without a break: it begins anew after it was gone'),
        ),
        migrations.AddConstraint(
            model_name='serverrow',
            constraint=models.CheckConstraint(
                condition=models.Q(('here_since__gte', models.F('first_seen'))), name='server_here_after_first_seen'
            ),
        ),
    ]
