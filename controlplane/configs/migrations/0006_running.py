import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("configs", "0005_processors"),
        ("xds", "0003_worker_kind"),
    ]

    operations = [
        migrations.CreateModel(
            name="Running",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "document",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="running",
                        to="configs.configdocument",
                    ),
                ),
                (
                    "revision",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="running",
                        to="configs.configrevision",
                    ),
                ),
                (
                    "worker",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="running",
                        to="xds.worker",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("worker", "document"), name="running_once_per_document")
                ],
            },
        ),
    ]
