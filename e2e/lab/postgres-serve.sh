#!/bin/sh
# Serves the database in PGDATA, and makes it first where there is none. A power failure while it
# is made leaves none.
set -eu
if ! [ -d "$PGDATA" ]; then
	rm -rf "$PGDATA.new"
	initdb -D "$PGDATA.new" --username=postgres --auth=trust --encoding=UTF8 --locale=C
	echo "host all all all trust" >>"$PGDATA.new/pg_hba.conf"
	mv "$PGDATA.new" "$PGDATA"
fi
exec postgres -D "$PGDATA" -h '*' -k /tmp
