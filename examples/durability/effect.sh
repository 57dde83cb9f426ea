#!/bin/sh
# What a tool does to the world: a line when it begins, and one when it is done.
say() {
    echo "$1 $WINDLASS_CALL_ID attempt=$WINDLASS_ATTEMPT key=$WINDLASS_IDEMPOTENCY_KEY" >> effects.txt
}
say "begin $1"
case "$1" in charge) sleep 1 ;; *) sleep 0.3 ;; esac
say "done  $1"
echo "{\"did\": \"$1\"}"
