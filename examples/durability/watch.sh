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
cp "$here/windlass.toml" "$here/effect.sh" "$here/batch.json" "$folder"
cd "$folder" || exit 1

echo "== run the batch, and kill -9 windlass in the middle of a charge"
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
echo "== run it again: what is recorded is answered, what may be repeated is, the charge is unknown"
"$windlass" run batch.json

echo
echo "== run it once more: nothing runs"
"$windlass" run batch.json

echo
echo "== what took effect: one line 'begin charge' per charge, whatever happened"
cat effects.txt

echo
echo "== what is recorded of the calls, and of the charge that was cut off"
"$windlass" calls
charge="$("$windlass" calls | awk '$3 == "charge" { print $1 }')"
"$windlass" calls "$charge" --journal
