from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('monitor', '0011_here_since'),
    ]

    operations = [
        migrations.AddField(
            model_name='watchedmodel',
            name='at_least',
            field=models.BooleanField(default=True, help_text='The size is what was seen; the model may have more blocks'),
        ),
    ]
