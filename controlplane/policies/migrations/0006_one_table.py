"""Guardrail policies are rows of the table of all configurations alone."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("policies", "0005_move_policies")]

    operations = [
        migrations.DeleteModel(name="GuardrailPolicyLink"),
        migrations.DeleteModel(name="GuardrailPolicy"),
        migrations.CreateModel(
            name="GuardrailPolicy",
            fields=[],
            options={
                "verbose_name_plural": "guardrail policies",
                "ordering": ["name"],
                "abstract": False,
                "proxy": True,
                "constraints": [],
                "indexes": [],
            },
            bases=("configs.configdocument",),
        ),
    ]
