#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# Registers the sources, and has the module built for the kernels whose headers are there. A first installation fails if it can be
# built for none. An upgrade does not: nobody may be there, and apt has other packages to go on with.

set -e

[ "$1" = configure ] || exit 0
before=${2-}
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
/usr/lib/@PACKAGE@/install-for "$@" || [ -n "$before" ]
