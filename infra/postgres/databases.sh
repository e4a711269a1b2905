#!/bin/sh
# Make one role and one database each for Prefect and for MLflow. PostgreSQL's image runs this once,
# when its volume is empty. A role reaches its own database and no other.
set -eu

own_database() {
    # The name is a word of ours; the password may hold anything, so psql quotes it.
    psql --set ON_ERROR_STOP=1 --username "$POSTGRES_USER" --dbname postgres \
        --set role="$1" --set password="$2" <<'SQL'
CREATE ROLE :"role" LOGIN PASSWORD :'password';
CREATE DATABASE :"role" OWNER :"role";
REVOKE ALL ON DATABASE :"role" FROM PUBLIC;
SQL
}

own_database prefect "${PREFECT_DATABASE_PASSWORD:?}"
own_database mlflow "${MLFLOW_DATABASE_PASSWORD:?}"
