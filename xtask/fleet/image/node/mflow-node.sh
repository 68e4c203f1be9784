#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# Applies a file of settings on a node, and writes metrics for node_exporter again and again: mflow-node.sh CONF METRICS.
# The file is applied again if the module was loaded again. Its devices that come later are opted in then. The status is 2 if the
# file is refused. What it has done stays when it ends: flows stay split while a pod is replaced.

set -u
conf=$1
metrics=$2
: "${RUN:=/run}" "${SYS:=/sys}" "${PERIOD_S:=15}"

trap 'exit 0' TERM INT
rm -f "$RUN/ready"

# An unconfirmed change of a pod before: who was to set it back has ended with that pod.
record=$RUN/mflow/unconfirmed.json
if [ -e "$record" ]; then
	mflow go-back "$(sed -n 's/.*"name":"\([^"]*\)".*/\1/p' "$record")"
fi

# Prints the number by which a module is told from one that is loaded later; nothing if none is.
load() {
	stat -c %i "$SYS/module/mflow" 2> /dev/null
}

# Prints the devices of the file that are here, with their numbers.
here() {
	for file in "$RUN"/mflow/devices/*; do
		index=$(cat "$SYS/class/net/${file##*/}/ifindex" 2> /dev/null) && printf '%s=%s ' "${file##*/}" "$index"
	done
}

# Opts in the devices that have come. One that cannot be opted in now is tried again.
opt_in() {
	for one in $(here); do
		case " $known" in
		*" $one "*) ;;
		*) mflow set devices "+${one%=*}" && known="$known$one " ;;
		esac
	done
}

applied=
known=
while :; do
	now=$(load)
	if [ -z "$now" ]; then
		rm -f "$RUN/ready"
		applied=
	elif [ "$now" != "$applied" ]; then
		# One that comes meanwhile is opted in twice rather than never.
		known=$(here)
		mflow apply "$conf"
		case $? in
		0)
			applied=$now
			: > "$RUN/ready"
			;;
		# The module has gone again.
		3) ;;
		*) exit 2 ;;
		esac
	else
		opt_in
	fi
	mflow metrics --file "$metrics"
	sleep "$PERIOD_S" &
	wait $!
done
