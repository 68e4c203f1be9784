# SPDX-License-Identifier: GPL-2.0
#
# Installs the package by the commands of a file on a copy of a fresh Debian. `fresh.rs` calls it, in a mount namespace.

system=$1 work=$2 downloads=$3 package=$4 commands=$5
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
[ "${rustc%%:*}" = rustc ] || fail "the compiler is another one: $rustc"
taken=$(inside modinfo -k "$release" -n "$0")
signer=$(inside modinfo -k "$release" -F signer "$0")
[ -n "$signer" ] || fail "$taken is not signed"
cp "$root$taken" "$work/out"
inside apt-get autoclean
