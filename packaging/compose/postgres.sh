#!/bin/sh
# The PostgreSQL servers of compose.yaml: postgres.sh OTHER [create]
#
# A server without data copies the other one and follows it; with `create`, it becomes the first primary if there is no
# other yet. Each waits for a standby with every commit, whichever of them is the primary.
set -eu
other=$1

create() {
    printf %s "$PGPASSWORD" > /tmp/password
    initdb --username=yunishard --pwfile=/tmp/password --auth-local=trust --auth-host=scram-sha-256 --encoding=UTF8 \
        --locale=C
    rm /tmp/password
    echo "host replication all all scram-sha-256" >> "$PGDATA/pg_hba.conf"
    echo "host all all all scram-sha-256" >> "$PGDATA/pg_hba.conf"
    echo "CREATE DATABASE yunishard" | postgres --single -j postgres
}

copy() {
    pg_basebackup --dbname="host=$other user=yunishard connect_timeout=2" --write-recovery-conf --checkpoint=fast \
        --pgdata="$PGDATA"
}

until test -s "$PGDATA/PG_VERSION" || copy; do
    if test "${2:-}" = create; then
        create
    else
        sleep 1
    fi
done
exec postgres -c listen_addresses='*' -c unix_socket_directories=/tmp -c synchronous_standby_names='*'
