# SPDX-License-Identifier: GPL-2.0
#
# Installs the package, has kernels come for which the module cannot be built, and removes the package: on this system under a layer
# in memory. `install.rs` calls it, in a mount namespace.

package=$1 layer=$2 out=$3 downloads=$4 file=$5 home=$6 modules=$7 release=$8 compilers=${9-}

fail() {
	echo "error: $1"
	exit 1
}

# Layers over folder $1, of which $3 is written and $2 only read.
cover() {
	mkdir -p "$layer/$3" "$layer/$3.work"
	mount -t overlay mflow -o "lowerdir=$2,upperdir=$layer/$3,workdir=$layer/$3.work" "$1"
}

mount -t tmpfs -o mode=755 mflow "$layer"
# The kernel's headers are where their package has them; its image and modules, too, and compilers that apt here has not.
cover /usr "$home/usr:${compilers:+$compilers/usr:}/usr" usr
cover /etc /etc etc
cover /var /var var
# Where / and /usr are not one.
[ -L /lib ] || cover /lib /lib lib
mkdir -p /lib/modules
mount -t tmpfs -o mode=755 mflow /lib/modules
mkdir "/lib/modules/$release"
cover "/lib/modules/$release" "$modules" modules
# What was put there for other tests.
rm -rf "/lib/modules/$release/extra"
sed -i "s|$home/usr/src/|/usr/src/|" "/usr/src/linux-headers-$release/Makefile"
# Root has no compiler of rustup.
for folder in ~root/.cargo ~root/.rustup; do
	[ ! -d "$folder" ] || mount -t tmpfs mflow "$folder"
done
# No service of this machine is started or stopped.
printf '#!/bin/sh\nexit 101\n' > /usr/sbin/policy-rc.d
chmod 755 /usr/sbin/policy-rc.d

export DEBIAN_FRONTEND=noninteractive
# Of the Rust compiler's sources only what DKMS builds is written: memory is their place here.
apt() {
	command=$1
	shift
	apt-get --quiet --yes --no-install-recommends -o APT::Sandbox::User= -o Dpkg::Use-Pty=0 \
		-o "Dir::Cache::archives=$downloads" -o "Dpkg::Options::=--path-exclude=/usr/src/rustc-*/*" \
		-o "Dpkg::Options::=--path-include=/usr/src/rustc-*/library/*" "$command" "$@"
}
# Lists that are old name package files that are no longer on the mirror.
apt install --reinstall "$file" || { apt update && apt install --reinstall "$file"; } ||
	{ cat /var/lib/dkms/$0/*/build/make.log; exit 1; }
apt autoclean

dkms status "$0"
installed() {
	find "/lib/modules/$1/" -path "*/updates/dkms/$0.ko*"
}
module=$(installed "$release")
[ -n "$module" ] || { cat /var/lib/dkms/$0/*/build/make.log; fail "DKMS has not installed the module"; }
taken=$(modinfo -k "$release" -n "$0")
[ "$taken" = "$module" ] || fail "modprobe would take $taken"
cp "$module" "$out"
modinfo -F signer "$module" > "$out/signer"

# Runs what a package with headers runs when the kernel $1 comes. It may not fail, and says $2.
comes() {
	said=$(run-parts --report --exit-on-error --arg="$1" /etc/kernel/header_postinst.d 2>&1) ||
		fail "a kernel without the module stays half installed: $said"
	case $said in
	*"$2"*) ;;
	*) fail "it should be said: $2; it was: $said" ;;
	esac
}

version=$(dkms status "$0" | sed "s|^$0/\([^,]*\),.*|\1|")
dkms uninstall -m "$0" -v "$version" -k "$release"
[ -z "$(installed "$release")" ] || fail "DKMS leaves the module there"
comes "$release" "DKMS builds it for Linux $release"
[ -n "$(installed "$release")" ] || fail "the kernel comes, and goes without the module: $said"

# Fails unless the file for monitoring has this line about kernel $1.
noted() {
	state=/var/lib/$package/kernels.prom
	grep -Fqx "mflow_kernel_module{kernel=\"$1\",reason=\"$2\"} $3" "$state" ||
		fail "it should be noted: $1 $3, $2; it was: $(cat "$state")"
}
noted "$release" "" 1

# A kernel as the first one, for which nothing can be compiled.
next=${release%%-*}-next
headers=/lib/modules/$next/build
mkdir -p "$headers/include/config"
own=/lib/modules/$release/build
cp "$own/.config" "$headers"
printf 'CC := gcc\nmodules:\n\t@echo "x.c:1: error: $(CC) wants another kernel"; exit 1\n' > "$headers/Makefile"
reset() {
	sed "s/^CONFIG_GCC_VERSION=.*/CONFIG_GCC_VERSION=$(gcc -dumpversion | sed 's/\..*//')0100/" \
		"$own/include/config/auto.conf" > "$headers/include/config/auto.conf"
	echo "$next" > "$headers/include/config/kernel.release"
	rm -f "$headers/.kernelvariables"
}
reset

# Has this kernel come: $1 is said, it goes without the module, and the first one keeps its own.
goes_without() {
	comes "$next" "$1"
	echo "$said" | grep "^mflow: "
	[ -z "$(installed "$next")" ] && [ -n "$(installed "$release")" ] ||
		fail "a kernel has the wrong module: $said"
}

# Does the rest while there is no program $1.
without() {
	places=
	while place=$(command -v "$1"); do
		mount --bind /dev/null "$place"
		places="$places $place"
	done
	shift
	"$@"
	# shellcheck disable=SC2086
	umount $places
}

log=/var/lib/dkms/$0/$version/build/make.log
goes_without "error: gcc wants another kernel; the log is $log; then: /usr/lib/$package/install-for $next"
noted "$next" "x.c:1: error: gcc wants another kernel; the log is $log" 0
noted "$release" "" 1
left=$(find "/var/lib/dkms/$0/$version/build" -mindepth 1 ! -path "$log")
[ -z "$left" ] || fail "what was not built fills the disk: $left"
without make goes_without "make is not installed; try: apt install make"
without openssl goes_without "openssl is not installed; try: apt install openssl"
without gcc goes_without "gcc is not installed; try: apt install gcc"

# The kernel's own compiler is another one than gcc: that of Debian's headers, one that is here, and one that is not.
printf 'CC := $(if $(CACHE),ccache) x86_64-linux-gnu-gcc-99\n' > "$headers/.kernelvariables"
goes_without "x86_64-linux-gnu-gcc-99 is not installed; try: apt install gcc-99"
reset
sed -i "s/^CONFIG_GCC_VERSION=.*/CONFIG_GCC_VERSION=990100/" "$headers/include/config/auto.conf"
goes_without "this kernel was compiled by gcc 99, and gcc here is"
printf '#!/bin/sh\necho 99\n' > /usr/local/bin/gcc-99
chmod 755 /usr/local/bin/gcc-99
goes_without "error: gcc-99 wants another kernel"
rm /usr/local/bin/gcc-99
reset

# Fails unless $2 are said to bring a compiler on Debian $1.
on_debian() {
	printf 'ID=debian\nVERSION_ID="%s"\n' "$1" > "$layer/os-release"
	mount --bind "$layer/os-release" "$(readlink -f /etc/os-release)"
	without rustc goes_without "rustc 1.85 or newer is missing, or its sources; try: apt install $2, or with rustup"
	umount "$(readlink -f /etc/os-release)"
}
on_debian 12 "rustc-web rust-web-src"
on_debian 13 "rustc rust-src"

rustc=$(command -v rustc)
printf '#!/bin/sh\necho "rustc 1.63.0"\n' > "$layer/old"
chmod 755 "$layer/old"
mount --bind "$layer/old" "$rustc"
goes_without "$rustc is 1.63.0"
umount "$rustc"

core=$("$rustc" --print sysroot)/lib/rustlib/src/rust/library/core/src
mount -t tmpfs mflow "$(readlink -f "$core")"
goes_without "has no sources"
umount "$(readlink -f "$core")"

# A disk that is full.
mount -t tmpfs -o size=1m mflow "/var/lib/dkms/$0/$version"
goes_without "there are 1 MiB left for /var/lib/dkms/$0/$version, and 256 are needed"
umount "/var/lib/dkms/$0/$version"

echo "CONFIG_PREEMPT_RT=y" >> "$headers/include/config/auto.conf"
goes_without "real-time"
reset
echo "6.6.1" > "$headers/include/config/kernel.release"
goes_without "this kernel is 6.6.1, and only Linux 6.1"
rm -r "${headers:?}"
goes_without "try: apt install linux-headers-$next"

# The module is made, and the disk has no room for it among those of its kernel.
dkms uninstall -m "$0" -v "$version" -k "$release"
mkdir -p "/lib/modules/$release/updates"
mount -t tmpfs -o size=8k mflow "/lib/modules/$release/updates"
comes "$release" "No space left on device"
echo "$said" | grep "^mflow: "
[ -z "$(installed "$release")" ] || fail "half a module is among those of the kernel: $said"
umount "/lib/modules/$release/updates"
status=$(dkms status "$0")
case $status in
*": added") ;;
*) fail "DKMS would go on with what is left: $status" ;;
esac

# A kernel that goes is not noted. Hooks of others would write to this machine's boot loader.
rm -r "/lib/modules/${next:?}"
"/etc/kernel/postrm.d/$package" "$next"
! grep "$next" "/var/lib/$package/kernels.prom" || fail "a kernel that has gone is noted"

# If nothing can be built, an installation says so by its status, and an upgrade does not.
upgrade() {
	"/var/lib/dpkg/info/$package.postinst" configure 0.1.0 || fail "the package stays half installed"
	why=$(sh "/usr/src/$0-$version/dkms-build" --check "$own" 2>&1) || noted "$release" "${why#mflow: }" 0
}
first_time() {
	! "/var/lib/dpkg/info/$package.postinst" configure || fail "an installation without a module succeeds"
}
without rustc upgrade
without rustc first_time

apt purge "$package"
left=$(find /lib/modules /usr/src /var/lib/dkms -name "$0*" -not -path '*/kernel/*'
	find /usr/lib /var/lib /etc/kernel/*.d -maxdepth 1 -name "$0*")
[ -z "$left" ] || fail "the package has left behind: $left"
