from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("core", "0010_audit_request"),
    ]

    operations = [
        migrations.AlterField(
            model_name="auditentry",
            name="channel",
            field=models.CharField(
                choices=[(name, name) for name in ("api", "cli", "console", "admin", "automation")],
                max_length=16,
            ),
        ),
    ]
