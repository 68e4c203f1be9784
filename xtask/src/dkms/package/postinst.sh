#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# Registers the sources, and has the module built for the kernels whose headers are there.

set -e

[ "$1" = configure ] || exit 0
# Of an attempt before.
if [ -n "$(dkms status -m @NAME@ -v @VERSION@)" ]; then
	dkms remove -m @NAME@ -v @VERSION@ --all
fi
dkms add -m @NAME@ -v @VERSION@ > /dev/null
shift $#
for headers in /lib/modules/*/build/include; do
	[ -e "$headers" ] || continue
	release=${headers#/lib/modules/}
	set -- "$@" "${release%/build/include}"
done
if [ $# = 0 ]; then
	release=$(uname -r)
	echo "mflow: it is built as soon as a kernel's headers are installed; try: apt install linux-headers-$release" >&2
	exit 0
fi
/usr/lib/@PACKAGE@/install-for "$@"
