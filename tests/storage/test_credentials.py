import pytest

from storage.credentials import has_password, without_credentials


@pytest.mark.parametrize(
    ("uri", "bare"),
    [
        ("http://me:secret@host:5000/path", "http://host:5000/path"),
        ("https://token@host", "https://host"),
        ("http://me:p@ss@host/a@b", "http://host/a@b"),
        ("postgresql+psycopg2://me:secret@host/db", "postgresql+psycopg2://host/db"),
        ("postgresql://host/db?user=me&password=secret&ssl=1", "postgresql://host/db?ssl=1"),
        ("postgresql://me:p/w0rd@host:5432/db", "postgresql://host:5432/db"),
        ("s3://me:sec#ret@bucket/x and http://host:80/a@b", "s3://bucket/x and http://host:80/a@b"),
        ("http://[::1]:5000/a@b", "http://[::1]:5000/a@b"),
        ("sqlite:////home/me@work/mlflow.db", "sqlite:////home/me@work/mlflow.db"),
        ("request to http://me:secret@host/x failed", "request to http://host/x failed"),
    ],
)
def test_credentials_are_left_out(uri: str, bare: str) -> None:
    assert without_credentials(uri) == bare


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("s3://key:secret@bucket/store", True),
        ("s3://key:sec/ret@bucket/store", True),
        ("s3://key:se@cret@bucket", True),
        ("s3://key:se cret@bucket", True),
        ("https://user@host/store", False),
        ("http://host:80/a@b:c", False),
        ("http://[::1]:5000/a@b", False),
    ],
)
def test_a_password_is_seen_before_the_host_only(address: str, expected: bool) -> None:
    assert has_password(address) is expected
