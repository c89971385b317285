"""A ledger of what projects use, written by triggers, and what is there already as its first rows."""

import django.db.models.deletion
from django.db import migrations, models

FUNCTIONS = """
CREATE FUNCTION registry_use_of_files() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO registry_projectuse (project_id, bytes, versions)
    SELECT model.project_id, sum(blob.size) * (CASE TG_OP WHEN 'INSERT' THEN 1 ELSE -1 END), 0
    FROM changed
    JOIN registry_blob blob ON blob.id = changed.blob_id
    JOIN registry_modelversion version ON version.id = changed.version_id
    JOIN registry_registeredmodel model ON model.id = version.model_id
    GROUP BY model.project_id;
    RETURN NULL;
END $$;

CREATE FUNCTION registry_use_of_versions() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO registry_projectuse (project_id, bytes, versions)
    SELECT model.project_id, 0, count(*) * (CASE TG_OP WHEN 'INSERT' THEN 1 ELSE -1 END)
    FROM changed
    JOIN registry_registeredmodel model ON model.id = changed.model_id
    WHERE changed.state NOT IN ('rejected', 'abandoned')
    GROUP BY model.project_id;
    RETURN NULL;
END $$;

CREATE FUNCTION registry_use_of_state() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO registry_projectuse (project_id, bytes, versions)
    SELECT model.project_id, 0, CASE WHEN NEW.state IN ('rejected', 'abandoned') THEN -1 ELSE 1 END
    FROM registry_registeredmodel model WHERE model.id = NEW.model_id;
    RETURN NULL;
END $$;
"""

TRIGGERS = """
CREATE TRIGGER registry_use_more_files AFTER INSERT ON registry_versionfile
    REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION registry_use_of_files();
CREATE TRIGGER registry_use_fewer_files AFTER DELETE ON registry_versionfile
    REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION registry_use_of_files();
CREATE TRIGGER registry_use_more_versions AFTER INSERT ON registry_modelversion
    REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION registry_use_of_versions();
CREATE TRIGGER registry_use_fewer_versions AFTER DELETE ON registry_modelversion
    REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION registry_use_of_versions();
CREATE TRIGGER registry_use_state AFTER UPDATE OF state ON registry_modelversion FOR EACH ROW
    WHEN ((OLD.state IN ('rejected', 'abandoned')) <> (NEW.state IN ('rejected', 'abandoned')))
    EXECUTE FUNCTION registry_use_of_state();
"""

FIRST_ROWS = """
INSERT INTO registry_projectuse (project_id, bytes, versions)
SELECT model.project_id, sum(blob.size), 0
FROM registry_versionfile file
JOIN registry_blob blob ON blob.id = file.blob_id
JOIN registry_modelversion version ON version.id = file.version_id
JOIN registry_registeredmodel model ON model.id = version.model_id
GROUP BY model.project_id
UNION ALL
SELECT model.project_id, 0, count(*)
FROM registry_modelversion version
JOIN registry_registeredmodel model ON model.id = version.model_id
WHERE version.state NOT IN ('rejected', 'abandoned')
GROUP BY model.project_id;
"""

UNDO = """
DROP TRIGGER registry_use_more_files ON registry_versionfile;
DROP TRIGGER registry_use_fewer_files ON registry_versionfile;
DROP TRIGGER registry_use_more_versions ON registry_modelversion;
DROP TRIGGER registry_use_fewer_versions ON registry_modelversion;
DROP TRIGGER registry_use_state ON registry_modelversion;
DROP FUNCTION registry_use_of_files;
DROP FUNCTION registry_use_of_versions;
DROP FUNCTION registry_use_of_state;
"""


class Migration(migrations.Migration):
    dependencies = [("registry", "0030_contributors")]

    operations = [
        migrations.CreateModel(
            name="ProjectUse",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("bytes", models.BigIntegerField(default=0)),
                ("versions", models.IntegerField(default=0)),
                (
                    "project",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="registry.project"
                    ),
                ),
            ],
        ),
        migrations.AddIndex(
            model_name="modelversion",
            index=models.Index(
                condition=models.Q(("code_permitted_at__isnull", False)),
                fields=["-code_permitted_at"],
                name="version_code_permitted",
            ),
        ),
        # The lock of making a trigger keeps writers out until the first rows stand.
        migrations.RunSQL([FUNCTIONS, TRIGGERS, FIRST_ROWS], UNDO),
    ]
