#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# Has DKMS build the module for kernels, and puts it among theirs: install-for [RELEASE]...
# A kernel for which that is not possible goes without, which is one sentence, and others keep theirs. Fails only if it could be done
# for none. A file says then which kernels have the module, as Prometheus reads it.

set -u
umask 022
# Some of what DKMS and cp say is read here.
export LC_ALL=C

sources=/usr/src/@NAME@-@VERSION@
tree=/var/lib/dkms/@NAME@/@VERSION@
log=$tree/build/make.log
state=/var/lib/@PACKAGE@/kernels.prom
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
		note "$release" 0 "its headers are not installed"
		return 77
	fi
	case $(dkms status -m @NAME@ -v @VERSION@ -k "$release") in
	*": installed"*)
		if is_whole "$release"; then
			note "$release" 1
			return 0
		fi
		discard "$release"
		;;
	esac
	why=$(sh "$sources/dkms-build" --check "$headers" 2>&1)
	status=$?
	why=${why#mflow: }
	if [ "$status" = 77 ]; then
		say "Linux $release goes without: $why"
		note "$release" 0 "$why"
		return 77
	fi
	if [ "$status" = 0 ]; then
		echo "mflow: DKMS builds it for Linux $release"
		rm -f "$log"
		if said=$(dkms install -m @NAME@ -v @VERSION@ -k "$release" 2>&1) && is_whole "$release"; then
			note_unsigned "$release"
			note "$release" 1
			return 0
		fi
		why=$(cause)
		[ ! -s "$log" ] || why="$why; the log is $log"
		discard "$release"
	fi
	say "Linux $release goes without, others keep theirs: $why; then: /usr/lib/@PACKAGE@/install-for $release"
	note "$release" 0 "$why"
	return 1
}

# Tells a module from one that a full disk has cut off, of which not each DKMS makes an error.
is_whole() {
	for module in "/lib/modules/$1/updates/dkms/@NAME@.ko"*; do
		case $(modinfo -F vermagic "$module" 2> /dev/null) in
		"$1 "*) return 0 ;;
		esac
	done
	return 1
}

# Says so if DKMS has not signed the module, of which it makes no error.
note_unsigned() {
	for module in "/lib/modules/$1/updates/dkms/@NAME@.ko"*; do
		[ -n "$(modinfo -F signer "$module")" ] ||
			say "$module is not signed, and a kernel with secure boot refuses it; $log may say why"
	done
}

# Prints the line that tells most, of what DKMS has said and written.
cause() {
	for sign in "No space left" "^mflow: " "error[:[]" "Error"; do
		line=$({ cat "$log"; printf '%s\n' "$said"; } 2> /dev/null | grep -m 1 -e "$sign") || continue
		printf '%s\n' "${line#mflow: }" | cut -c 1-300
		return
	done
	printf '%s\n' "${said:-DKMS has failed}" | tail -n 1
}

# Takes away what an attempt has left but the log. DKMS would go on with it.
discard() {
	dkms unbuild -m @NAME@ -v @VERSION@ -k "$1" > /dev/null 2>&1
	rm -rf "${tree:?}/$1"
	rm -f "/lib/modules/$1/updates/dkms/@NAME@.ko"*
	(cd "/lib/modules/$1" && rmdir -p --ignore-fail-on-non-empty updates/dkms) 2> /dev/null
	find "$tree/build" -mindepth 1 ! -name make.log -delete 2> /dev/null
}

# Writes down that a kernel has the module (1), or goes without (0), and why. Others stay if they are still there.
note() {
	mkdir -p "${state%/*}"
	{
		echo "# HELP mflow_kernel_module 1 if a kernel has the module mflow, 0 if it goes without."
		echo "# TYPE mflow_kernel_module gauge"
		others "${1-}"
		[ $# = 0 ] || printf 'mflow_kernel_module{kernel="%s",reason="%s"} %s\n' "$1" "$(quotable "${3-}")" "$2"
	} > "$state.new" || return
	mv "$state.new" "$state"
}

# Prints the lines about other kernels.
others() {
	grep "^mflow_kernel_module{" "$state" 2> /dev/null | while IFS= read -r line; do
		kernel=${line#*\"}
		kernel=${kernel%%\"*}
		[ "$kernel" != "$1" ] || continue
		[ -e "/lib/modules/$kernel/build" ] || [ -e "/lib/modules/$kernel/kernel" ] || continue
		case $line in
		*" 1") is_whole "$kernel" || continue ;;
		esac
		printf '%s\n' "$line"
	done
}

quotable() {
	printf '%s\n' "$1" | sed 's/[\\"]/\\&/g;1q'
}

# A kernel has gone.
if [ $# = 0 ]; then
	note
	exit 0
fi
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
