#!/bin/sh
# What a tool does to the world: a line when it begins, and one when it is done.
effects="${EFFECTS:-effects.txt}"
say() {
    echo "$1 $WINDLASS_CALL_ID attempt=$WINDLASS_ATTEMPT key=$WINDLASS_IDEMPOTENCY_KEY" >> "$effects"
}
say "begin $1"
sleep 0.3
say "done  $1"
echo "{\"did\": \"$1\"}"
