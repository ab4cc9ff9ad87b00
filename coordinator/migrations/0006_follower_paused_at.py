from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0005_slow_loads")]

    operations = [
        migrations.AddField(
            model_name="follower",
            name="paused_at",
            field=models.DateTimeField(
                help_text="When the last pause was noted; the clock may be set back afterwards", null=True
            ),
        ),
    ]
