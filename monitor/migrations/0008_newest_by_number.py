from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('monitor', '0007_kept_snapshots'),
    ]

    operations = [
        migrations.AddIndex(
            model_name='crawl',
            index=models.Index(fields=['swarm', 'outcome', '-id'], name='crawl_newest_outcome'),
        ),
    ]
