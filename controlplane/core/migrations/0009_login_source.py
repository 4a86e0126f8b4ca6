from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [
        ("core", "0008_change_at"),
    ]

    operations = [
        migrations.RenameField(model_name="loginfailure", old_name="address", new_name="source"),
    ]
