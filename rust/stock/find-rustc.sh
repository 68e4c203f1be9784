#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# Finds a compiler for the Rust half. Prints its version, the first file of the sources of its `core`, and the compiler. If there is
# none, says in one sentence what to install, and fails.
#
# MFLOW_RUSTC: this compiler and no other.

set -u

# What Debian 13 has. The layer `stock` of the tests builds with it.
LEAST=1.85

# rustc would take make's jobs for its own.
unset MAKEFLAGS MFLAGS CARGO_MAKEFLAGS

tried=
lacks=

# Ends the search with this compiler, or notes what it lacks.
try() {
	rustc=$(command -v "$1") && [ -f "$rustc" ] && [ -x "$rustc" ] || return 0
	shift
	case " $tried " in
	*" $rustc "*) return 0 ;;
	esac
	tried="$tried $rustc"
	version=$("$rustc" "$@" --version 2> /dev/null | sed -n 's/^rustc \([0-9.]*\).*/\1/p')
	if [ -z "$version" ]; then
		lacks="$lacks; $rustc does not run"
		return 0
	fi
	if [ "$(printf '%s\n' "$LEAST" "$version" | sort -V | head -n 1)" != "$LEAST" ]; then
		lacks="$lacks; $rustc is $version"
		return 0
	fi
	library=$("$rustc" "$@" --print sysroot 2> /dev/null)/lib/rustlib/src/rust/library
	# A distribution's may be of another version, as they are a package of their own.
	case $(readlink -f "$library") in
	"/usr/src/rustc-$version"/*) ;;
	/usr/src/rustc-*) library="/usr/src/rustc-$version/library" ;;
	esac
	if [ ! -e "$library/core/src/lib.rs" ]; then
		lacks="$lacks; $rustc $version has no sources"
		return 0
	fi
	echo "$version $library/core/src/lib.rs $rustc${*:+ $*}"
	exit 0
}

if [ -n "${MFLOW_RUSTC-}" ]; then
	# It may have options.
	# shellcheck disable=SC2086
	try $MFLOW_RUSTC
	echo "mflow: MFLOW_RUSTC is to be rustc $LEAST or newer with its sources${lacks:-; there is no $MFLOW_RUSTC}" >&2
	exit 1
fi
try rustc
try /usr/bin/rustc
# Where rustup puts root's, whoever runs this.
try ~root/.cargo/bin/rustc
# Debian 12 has a newer one beside its own, for browsers.
packages="rustc rust-src"
# shellcheck source=/dev/null
if (. /etc/os-release && [ "$ID $VERSION_ID" = "debian 12" ]) 2> /dev/null; then
	packages="rustc-web rust-web-src"
fi
echo "mflow: rustc $LEAST or newer is missing, or its sources$lacks; try: apt install $packages, or with rustup:" \
	"rustup component add rust-src" >&2
exit 1
