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

# Fails unless a program is there. Compilers have the names of their packages, perhaps behind that of the machine.
needs_program() {
	command -v "$1" > /dev/null || refuse 1 "$1 is not installed; try: apt install ${1##*-linux-gnu-}"
}

# Fails unless a folder's disk has so many MiB left. What is cut off there may look whole.
needs_room() {
	[ -d "$1" ] || return 0
	free=$(df --block-size=M --output=avail "$1" | tail -n 1 | tr -cd 0-9)
	[ "${free:-0}" -ge "$2" ] || refuse 1 "there are ${free:-0} MiB left for $1, and $2 are needed"
}

# Prints the first number of a compiler's version.
major_of() {
	"$1" -dumpversion 2> /dev/null | sed 's/\..*//'
}

[ -e "$config" ] || refuse 1 "there is no $config: install the headers of this kernel again"
release=$(cat "$headers/include/config/kernel.release")
case $release in
@PATTERNS@) ;;
*) refuse 77 "this kernel is $release, and only Linux @VERSIONS@ will do" ;;
esac
@OPTIONS@
lacks CONFIG_MFLOW_HOOKS=y "the module of its own"
needs_program make
needs_program openssl
# The kernel's own compiler, or one that agrees with it on structures.
major=$(sed -n 's/^CONFIG_GCC_VERSION=\(.*\)....$/\1/p' "$config")
cc=gcc
if [ -e "$headers/.kernelvariables" ]; then
	# Debian's headers name it.
	# shellcheck disable=SC2016
	cc=$(printf 'CC := gcc\ninclude %s\nmflow-cc:\n\t@echo $(lastword $(CC))\n' "$headers/.kernelvariables" |
		make -s -f - mflow-cc)
elif [ "$(major_of gcc)" != "$major" ] && command -v "gcc-$major" > /dev/null; then
	cc=gcc-$major
	set -- "$@" "CC=$cc"
fi
needs_program "$cc"
sh "$(dirname "$0")/rust/stock/find-rustc.sh" > /dev/null
needs_room /var/lib/dkms/@NAME@/@VERSION@ 256
needs_room "${TMPDIR:-/tmp}" 16
[ -z "$only_check" ] || exit 0

# Types for tracers need pahole.
command -v pahole > /dev/null || set -- "$@" CONFIG_DEBUG_INFO_BTF_MODULES=
make -j "$(nproc)" -C "$headers" M="$PWD" "$@" modules && exit 0
here=$(major_of "$cc")
[ "$here" = "${major:-$here}" ] || refuse 1 "this kernel was compiled by gcc $major, and $cc here is $here"
exit 1
