#!/bin/sh
# Watch durability: run a batch, kill windlass in the middle of a charge, run the batch again.
#
#   ./watch.sh [WINDLASS]      the binary; by default the one on the PATH
#
# Everything is written to a new folder, so it can be watched as often as one likes.
set -u
windlass="${1:-windlass}"
here="$(cd "$(dirname "$0")" && pwd)"
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cp "$here/windlass.toml" "$here/effect.sh" "$here/batch.json" "$here/ship.json" "$folder"
cd "$folder" || exit 1

echo "== run the batch, and kill -9 windlass in the middle of the charge"
"$windlass" run batch.json &
pid=$!
until grep -q "begin charge" effects.txt 2>/dev/null; do
    kill -0 "$pid" 2>/dev/null || exit 1
    sleep 0.01
done
kill -9 "$pid"
wait "$pid" 2>/dev/null
cat effects.txt

echo
echo "== run it again: the charge is unknown and not repeated, and so nothing is shipped"
"$windlass" run batch.json

echo
echo "== run it once more: nothing runs"
"$windlass" run batch.json

echo
echo "== what took effect so far: the charge began once, no parcel"
cat effects.txt

echo
echo "== what is recorded of the charge that was cut off"
"$windlass" calls
charge="$("$windlass" calls | awk '$3 == "charge" { print $1 }')"
"$windlass" calls "$charge" --journal

echo
echo "== a person looks at the bank's page: the charge took effect; only now the parcel is ordered"
"$windlass" resolve "$charge" --landed '{"did": "charge"}'
"$windlass" run ship.json

echo
echo "== what took effect in the end: one charge, one parcel"
cat effects.txt
