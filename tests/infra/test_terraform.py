import os
import shutil
from pathlib import Path

import pytest

from tests.infra.manifests import INFRA, run, tool

FOLDER = INFRA / "terraform"
PLUGINS = (Path("/opt/tf-plugins"), Path.home() / ".terraform.d" / "plugins")
OFFLINE = {
    **{name: value for name, value in os.environ.items() if name != "TF_CLI_CONFIG_FILE"},
    "CHECKPOINT_DISABLE": "1",
    "TF_IN_AUTOMATION": "1",
}


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """Return a copy of the folder with the provider installed from this machine."""
    provider = "registry.terraform.io/hashicorp/aws"
    plugins = next((place for place in PLUGINS if (place / provider).is_dir()), None)
    if plugins is None:
        pytest.skip("no AWS provider lies on this machine, so terraform validate was not run")
    copy = shutil.copytree(FOLDER, tmp_path / "terraform", ignore=shutil.ignore_patterns(".t*"))
    code, said = terraform(copy, "init", "-backend=false", "-input=false", f"-plugin-dir={plugins}")
    assert code == 0, said
    return copy


def terraform(folder: Path, *arguments: str) -> tuple[int, str]:
    done = run(tool("terraform"), f"-chdir={folder}", *arguments, "-no-color", env=OFFLINE)
    return done.returncode, done.stdout


def test_files_are_formatted() -> None:
    code, said = terraform(FOLDER, "fmt", "-check", "-recursive")
    assert code == 0, said


@pytest.mark.slow
def test_the_configuration_is_valid_and_a_typo_is_caught(workspace: Path) -> None:
    code, said = terraform(workspace, "validate")
    assert code == 0, said
    bucket = workspace / "bucket.tf"
    bucket.write_text(
        bucket.read_text().replace("restrict_public_buckets", "restrict_public_bucket")
    )
    code, said = terraform(workspace, "validate")
    assert code != 0
    assert "restrict_public_bucket" in said


TYPOS = [
    ("bucket.tf", "noncurrent_version_expiration", "noncurrent_versions_expiration"),
    ("database.tf", "aws_db_subnet_group.database.name", "aws_db_subnet_grup.database.name"),
    ("outputs.tf", "local.folders.worker", "local.folder.worker"),
    ("roles.tf", "max_session_duration", "max_sesion_duration"),
    ("secrets.tf", "recovery_window_in_days", "recovery_window_days"),
    ("variables.tf", "error_message", "error_mesage"),
    ("versions.tf", "required_version", "require_version"),
    ("reference.tftest.hcl", "expect_failures", "expect_failure"),
]


@pytest.mark.slow
def test_a_misspelt_word_in_any_file_is_caught(workspace: Path) -> None:
    assert {name for name, _, _ in TYPOS} == {path.name for path in FOLDER.glob("[a-z]*.*")}
    code, said = terraform(workspace, "validate")
    assert code == 0, said
    for name, right, wrong in TYPOS:
        whole = (workspace / name).read_text()
        assert right in whole
        (workspace / name).write_text(whole.replace(right, wrong))
        code, said = terraform(workspace, "validate")
        assert code != 0, f"{wrong} in {name} was not noticed"
        assert name in said
        (workspace / name).write_text(whole)


@pytest.mark.slow
def test_plans_keep_their_promises_and_a_wider_role_is_caught(workspace: Path) -> None:
    code, said = terraform(workspace, "test")
    assert code == 0, said
    bucket, whole = workspace / "bucket.tf", (workspace / "bucket.tf").read_text()
    bucket.write_text(whole.replace('.folders.worker}/claims/"', '.folders.worker}/"'))
    code, said = terraform(workspace, "test")
    assert code != 0
    assert "Versions of something else than claims are lost after a day" in said
    bucket.write_text(whole)
    roles = workspace / "roles.tf"
    roles.write_text(roles.read_text().replace('"s3:GetObject",', '"s3:*",'))
    code, said = terraform(workspace, "test")
    assert code != 0
    assert "The worker may do something else with objects" in said


def test_no_secret_passes_through_terraform() -> None:
    text = "".join(path.read_text() for path in FOLDER.glob("*.tf"))
    assert "aws_secretsmanager_secret_version" not in text
    assert "manage_master_user_password = true" in text
    for word in ("password ", "secret_string", "access_key"):
        assert f"{word}=" not in text.replace("manage_master_user_password =", "")
