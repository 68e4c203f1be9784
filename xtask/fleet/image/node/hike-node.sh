#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# Makes a file what hiked has configured on a node, and writes metrics for node_exporter again and again: hike-node.sh FILE METRICS.
# It runs beside hiked, which it waits for. The status is 2 if the file is refused.

set -u
file=$1
metrics=$2
: "${RUN:=/run}" "${PERIOD_S:=15}" "${PATIENCE_S:=60}"

trap 'exit 0' TERM INT
rm -f "$RUN/ready"
waited=0
until hike status > /dev/null 2>&1; do
	if [ "$waited" -ge "$PATIENCE_S" ]; then
		hike status
		exit 1
	fi
	waited=$((waited + 1))
	sleep 1 &
	wait $!
done
hike apply "$file" || exit
: > "$RUN/ready"
# The collector reads names that end with `.prom` alone.
aside=${metrics%/*}/.${metrics##*/}.new
while :; do
	if hike metrics > "$aside"; then
		mv "$aside" "$metrics"
	fi
	sleep "$PERIOD_S" &
	wait $!
done
