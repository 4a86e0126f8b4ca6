from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("configs", "0006_running")]

    operations = [
        migrations.AddField(
            model_name="revisionack",
            name="blocked",
            field=models.PositiveBigIntegerField(default=0),
        ),
        migrations.AddField(
            model_name="rollout",
            name="max_blocked_share",
            field=models.FloatField(null=True),
        ),
    ]
