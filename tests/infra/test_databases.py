"""The script that makes the two databases, run by a superuser and by one who is none."""

from dataclasses import replace

from tests.infra.postgres_server import make_databases, postgres_server

PASSWORDS = {"prefect": "a 'quoted' password", "mlflow": 'another "one"'}
OWNERS = "SELECT datname, pg_get_userbyid(datdba) FROM pg_database WHERE NOT datistemplate"


def test_who_is_no_superuser_makes_them_as_well() -> None:
    with postgres_server() as server:
        # What the first user of RDS may do.
        made = server.ask(
            "postgres",
            "CREATE ROLE master LOGIN NOSUPERUSER CREATEDB CREATEROLE PASSWORD 'of RDS'",
            "postgres",
            server.password,
        )
        assert made == "CREATE ROLE"
        make_databases(replace(server, password="of RDS", user="master"), PASSWORDS)
        owners = server.ask("postgres", OWNERS, "postgres", server.password).splitlines()
        assert sorted(owners) == ["mlflow|mlflow", "postgres|postgres", "prefect|prefect"]
        for role, password in PASSWORDS.items():
            made = server.ask(role, "CREATE TABLE mine (number int)", role, password)
            assert made == "CREATE TABLE"
        refused = server.ask("prefect", "SELECT 1", "mlflow", PASSWORDS["mlflow"])
        assert "permission denied" in refused
