#!/bin/bash
# Make the topic `steplog` and its schema topic as `steplog topic create` makes them; run by
# compose.yaml in the image's shell. Topics that are there already are left as they are.
# tests/packaging/test_compose.py compares the settings with those of the command.
set -euo pipefail

topic=${TOPIC:-steplog}
long_max=9223372036854775807

create() {
    local name=$1 partitions=$2 setting
    shift 2
    local settings=()
    for setting in "$@"; do
        settings+=(--config "$setting")
    done
    "${KAFKA_BIN:-/opt/kafka/bin}/kafka-topics.sh" --bootstrap-server "$BOOTSTRAP" \
        --create --if-not-exists --topic "$name" \
        --partitions "$partitions" --replication-factor "$COPIES" "${settings[@]}"
}

create "$topic" "${PARTITIONS:-64}" \
    cleanup.policy=delete retention.ms=-1 retention.bytes=-1 \
    max.message.bytes=1048588 \
    message.timestamp.type=CreateTime \
    message.timestamp.before.max.ms="$long_max" message.timestamp.after.max.ms="$long_max" \
    min.insync.replicas="$IN_SYNC" unclean.leader.election.enable=false

create "$topic.schemas" 1 \
    cleanup.policy=compact retention.ms=-1 retention.bytes=-1 \
    min.insync.replicas="$IN_SYNC" unclean.leader.election.enable=false
