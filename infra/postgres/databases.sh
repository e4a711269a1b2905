#!/bin/sh
# Make one role and one database each for Prefect and for MLflow. PostgreSQL's image runs this once,
# when its volume is empty; for a server elsewhere it is run by hand (infra/README.md), as a user who
# may make roles and databases. A role reaches its own database and no other.
set -eu

own_database() {
    # The name is a word of ours; the password may hold anything, so psql quotes it. Who is no
    # superuser, as on RDS, can give a database only to a role that it is a member of.
    psql --set ON_ERROR_STOP=1 --username "$POSTGRES_USER" --dbname postgres \
        --set role="$1" --set password="$2" <<'SQL'
CREATE ROLE :"role" LOGIN PASSWORD :'password';
GRANT :"role" TO CURRENT_USER;
CREATE DATABASE :"role" OWNER :"role";
REVOKE ALL ON DATABASE :"role" FROM PUBLIC;
SQL
}

own_database prefect "${PREFECT_DATABASE_PASSWORD:?}"
own_database mlflow "${MLFLOW_DATABASE_PASSWORD:?}"
