#!/bin/sh
# Windlass as a client of the conformance suite: puts the server at the URL behind itself, accepts its tools and calls each of them once.
#     WINDLASS=… client.sh URL
set -eu
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cd "$folder"
printf '[mcp.suite]\nurl = "%s"\ninternal = true\nprefix = ""\nclass = "read"\napproval = "never"\ntimeout_ms = 20000\n' "$1" >windlass.toml
"$WINDLASS" mcp accept suite --yes
"$WINDLASS" mcp ls --json | python3 -c '
import json, sys
args = {"add_numbers": {"a": 5, "b": 3}}
for tool in json.load(sys.stdin)["tools"]:
    print(tool["name"], json.dumps(args.get(tool["tool"], {})))
' | while read -r tool args; do "$WINDLASS" call "$tool" "$args" </dev/null || true; done
