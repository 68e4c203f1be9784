# SPDX-License-Identifier: GPL-2.0
#
# Installs the package by the commands of a file on a copy of a fresh Debian. Then kernels come for which the module cannot be built.
# `fresh.rs` calls it, in a mount namespace.

system=$1 work=$2 downloads=$3 package=$4 commands=$5 compiler=$6
root=$work/root

fail() {
	echo "error: $1"
	exit 1
}

cp -a "$system" "$root"
mount -t proc mflow "$root/proc"
mkdir "$work/out"
# What was downloaded once is not again.
mount --bind "$downloads" "$root/var/cache/apt/archives"
rm -f "$root/etc/resolv.conf"
cp /etc/resolv.conf "$root/etc"
cp "$package" "$root/srv"

cat > "$root/etc/apt/apt.conf.d/90mflow" <<'END'
// Nobody is there to be asked.
APT::Get::Assume-Yes "true";
APT::Sandbox::User "";
Binary::apt::APT::Keep-Downloaded-Packages "true";
Dpkg::Use-Pty "0";
END
# No disk is to keep what is gone in a minute.
echo force-unsafe-io > "$root/etc/dpkg/dpkg.cfg.d/mflow"
printf '#!/bin/sh\nexit 101\n' > "$root/usr/sbin/policy-rc.d"
chmod 755 "$root/usr/sbin/policy-rc.d"

# Runs a command in that system, with few variables.
inside() {
	chroot "$root" env -i HOME=/ LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
		PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
		${http_proxy:+"http_proxy=$http_proxy"} ${https_proxy:+"https_proxy=$https_proxy"} "$@"
}

inside apt-get --quiet update
headers=linux-headers-cloud-amd64
release=$(inside apt-cache depends "$headers" | sed -n 's/^ *Depends: linux-headers-//p' | head -1)
[ -n "$release" ] || fail "apt offers no $headers"
echo "$release" > "$work/release"

# The kernel that such a machine would run, and the package that cargo has made.
cat > "$root/usr/local/bin/uname" <<END
#!/bin/sh
[ "\$*" = -r ] || exec /usr/bin/uname "\$@"
echo "$release"
END
cat > "$root/usr/local/bin/cargo" <<END
#!/bin/sh
[ "\$*" = "xtask build-module --dkms-deb" ] || { echo "cargo: \$*?" >&2; exit 1; }
echo "a line before it"
echo "/srv/${package##*/}"
END
chmod 755 "$root/usr/local/bin/uname" "$root/usr/local/bin/cargo"

while read -r command; do
	echo "root@debian:~# $command"
	inside sh -c "$command" < /dev/null || fail "$command"
done < "$commands"

log() {
	cat "$root"/var/lib/dkms/"$0"/*/build/make.log 2> /dev/null || true
}
inside dkms status "$0"
for kernel in "$root"/lib/modules/*; do
	kernel=${kernel##*/}
	inside modinfo -k "$kernel" -F vermagic "$0" || { log; fail "Linux $kernel has no module"; }
done
rustc=$(inside sh -c 'dpkg -S "$(command -v rustc)"')
[ "${rustc%%:*}" = "$compiler" ] || fail "the compiler is another one: $rustc"
taken=$(inside modinfo -k "$release" -n "$0")
signer=$(inside modinfo -k "$release" -F signer "$0")
[ -n "$signer" ] || fail "$taken is not signed"
cp "$root$taken" "$work/out"

# Fails unless apt and dpkg have nothing left to do, and kernel $1 is noted with $2: it has the module, or goes without.
settled() {
	left=$(inside dpkg --audit)
	[ -z "$left" ] || fail "packages are half installed: $left"
	noted=$(grep -F "{kernel=\"$1\"," "$root/var/lib/$0-dkms/kernels.prom" || true)
	echo "$noted"
	[ "${noted##* }" = "$2" ] || fail "kernel $1 is noted otherwise"
}

# Does what a service does by itself, for which HOME is not set.
unattended() {
	inside env -u HOME apt-get --quiet "$@" < /dev/null || fail "apt-get $*"
}

settled "$release" 1
# A kernel for which the module is not made.
unattended install linux-headers-rt-amd64
real_time=$(inside apt-cache depends linux-headers-rt-amd64 | sed -n 's/^ *Depends: linux-headers-//p' | head -1)
settled "$real_time" 0
settled "$release" 1
# A kernel for which it is, and a compiler that does not work.
version=$(inside dkms status "$0" | sed -n "s|^$0/\([^,]*\),.*|\1|p" | head -1)
inside dkms unbuild -m "$0" -v "$version" -k "$release"
rustc=$(inside readlink -f /usr/bin/rustc)
mv "$root$rustc" "$root$rustc.away"
unattended install --reinstall "linux-headers-$release"
settled "$release" 0
# What apt says then helps.
mv "$root$rustc.away" "$root$rustc"
inside "/usr/lib/$0-dkms/install-for" "$release"
settled "$release" 1
inside modinfo -k "$release" -F signer "$0"
unattended purge "$0-dkms"
left=$(inside find /lib/modules /usr/src /var/lib /usr/lib /etc/kernel -name "$0*" -not -path '/var/lib/dpkg/*')
[ -z "$left" ] || fail "the package has left behind: $left"
inside apt-get autoclean
