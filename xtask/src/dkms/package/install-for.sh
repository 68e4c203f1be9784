#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# Has DKMS build the module for kernels, and puts it among theirs: install-for RELEASE...
# A kernel for which that is not possible goes without, which is one sentence, and others keep theirs. Fails only if it could be done
# for none.

set -u

sources=/usr/src/@NAME@-@VERSION@
log=/var/lib/dkms/@NAME@/@VERSION@/build/make.log
built=
failed=

say() {
	echo "mflow: $1" >&2
}

# Returns 0 if the kernel has the module then, 77 if it is none for it, or has to wait for its headers.
install_for() {
	release=$1
	headers=/lib/modules/$release/build
	if [ ! -e "$headers/include" ]; then
		say "Linux $release gets it as soon as its headers are installed; try: apt install linux-headers-$release"
		return 77
	fi
	case $(dkms status -m @NAME@ -v @VERSION@ -k "$release") in
	*": installed"*) return 0 ;;
	esac
	why=$(sh "$sources/dkms-build" --check "$headers" 2>&1)
	status=$?
	if [ "$status" = 77 ]; then
		say "Linux $release goes without: ${why#mflow: }"
		return 77
	fi
	if [ "$status" = 0 ]; then
		echo "mflow: DKMS builds it for Linux $release"
		if said=$(dkms install -m @NAME@ -v @VERSION@ -k "$release" 2>&1); then
			note_unsigned "$release"
			return 0
		fi
		why="the log is $log"
		[ -e "$log" ] || why=$said
	fi
	say "Linux $release goes without, others keep theirs: ${why#mflow: }; then: dkms install -m @NAME@ -v @VERSION@ -k $release"
	return 1
}

# Says so if DKMS has not signed the module, of which it makes no error.
note_unsigned() {
	for module in "/lib/modules/$1/updates/dkms/@NAME@.ko"*; do
		[ -n "$(modinfo -F signer "$module")" ] ||
			say "$module is not signed, and a kernel with secure boot refuses it; $log may say why"
	done
}

if [ -e /etc/dkms/no-autoinstall ]; then
	say "it is built for no kernel, as /etc/dkms/no-autoinstall asks for"
	exit 0
fi
for release; do
	install_for "$release"
	case $? in
	0) built=yes ;;
	1) failed=yes ;;
	esac
done
[ -n "$built" ] || [ -z "$failed" ]
