from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("registry", "0027_upload_parts"),
    ]

    operations = [
        migrations.AddField(
            model_name="upload",
            name="part_bytes",
            field=models.BigIntegerField(default=0),
        ),
    ]
