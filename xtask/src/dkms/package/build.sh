#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# Builds the module for the kernel with these headers, in a folder with its sources: dkms-build [--check] HEADERS. With --check it only
# says what stands in the way, if anything does. The status is 77 if the kernel is none that the module is made for.

set -eu

# Whoever calls it, root's shell, apt or a service: the programs are the distribution's.
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH
unset MAKEFLAGS MFLAGS

only_check=
if [ "$1" = --check ]; then
	only_check=yes
	shift
fi
headers=$1
shift
config=$headers/include/config/auto.conf

refuse() {
	echo "mflow: $2" >&2
	exit "$1"
}

has() {
	grep -q "^$1\$" "$config"
}

needs() {
	has "$1" || refuse 77 "this kernel lacks $2 ($1)"
}

lacks() {
	! has "$1" || refuse 77 "this kernel has $2 ($1)"
}

[ -e "$config" ] || refuse 1 "there is no $config: install the headers of this kernel again"
release=$(cat "$headers/include/config/kernel.release")
case $release in
@PATTERNS@) ;;
*) refuse 77 "this kernel is $release, and only Linux @VERSIONS@ will do" ;;
esac
@OPTIONS@
lacks CONFIG_MFLOW_HOOKS=y "the module of its own"
for program in make openssl; do
	command -v $program > /dev/null || refuse 1 "$program is not installed; try: apt install $program"
done
sh "$(dirname "$0")/rust/stock/find-rustc.sh" > /dev/null
[ -z "$only_check" ] || exit 0

# Types for tracers need pahole.
command -v pahole > /dev/null || set -- CONFIG_DEBUG_INFO_BTF_MODULES=
exec make -j "$(nproc)" -C "$headers" M="$PWD" "$@" modules
