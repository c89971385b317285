from django.db import migrations, models


class Migration(migrations.Migration):
    """What was promised as BLAKE3 is not carried over: of such an upload SHA-256 is computed and not compared."""

    dependencies = [
        ("registry", "0033_history_no_truncate"),
    ]

    operations = [
        migrations.RemoveField(
            model_name="blob",
            name="blake3",
        ),
        migrations.RemoveField(
            model_name="upload",
            name="blake3",
        ),
        migrations.RemoveField(
            model_name="upload",
            name="expected_blake3",
        ),
        migrations.AddField(
            model_name="upload",
            name="expected_xxh3",
            field=models.CharField(blank=True, max_length=32),
        ),
    ]
