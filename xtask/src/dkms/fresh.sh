# SPDX-License-Identifier: GPL-2.0
#
# Installs the packages by the commands of a file on a copy of a fresh Debian. Then kernels come for which the module cannot be built, and
# the packages go again. `fresh.rs` calls it, in a mount namespace.

system=$1 work=$2 downloads=$3 commands=$4 compiler=$5
shift 5
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
cp "$@" "$root/srv"

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

# The kernel that such a machine would run, and the packages that cargo has made.
cat > "$root/usr/local/bin/uname" <<END
#!/bin/sh
[ "\$*" = -r ] || exec /usr/bin/uname "\$@"
echo "$release"
END
cat > "$root/usr/local/bin/cargo" <<END
#!/bin/sh
[ "\$*" = "xtask build-module --dkms-deb" ] || { echo "cargo: \$*?" >&2; exit 1; }
echo "a line before them"
ls /srv/*.deb
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

# The command, without the module.
tools=$0-tools
inside "$0" metrics | grep -Fx "${0}_loaded 0"
status=0
said=$(inside "$0" apply 2>&1) || status=$?
case $status,$said in
"3,$0: the module $0 is not loaded"*) ;;
*) fail "$0 apply has ended with $status, and said: $said" ;;
esac
for path in man/man1/"$0"-apply.1.gz bash-completion/completions/"$0"; do
	[ -s "$root/usr/share/$path" ] || fail "there is no $path"
done

# What systemd is asked for, as if it ran.
unattended install systemd udev
mkdir -p "$root/run/systemd/system"
asked=$root/srv/asked
invoke=$root/usr/bin/deb-systemd-invoke
mv "$invoke" "$invoke.away"
printf '#!/bin/sh\necho "$@" >> /srv/asked\n' > "$invoke"
chmod 755 "$invoke"
inside systemd-analyze verify --man=no "$0.service" "$0-device@eth0.service"
if inside udevadm verify --help > /dev/null 2>&1; then
	inside udevadm verify "/usr/lib/udev/rules.d/90-$0.rules"
fi
enabled=etc/systemd/system/multi-user.target.wants/$0.service
[ ! -L "$root/$enabled" ] || fail "the service is enabled before anybody has asked for it"
inside env SYSTEMD_OFFLINE=1 systemctl enable "$0"

# An upgrade stops nothing, and leaves what the operator has written and enabled.
echo "devices eth0" >> "$root/etc/$0.conf"
inside mkdir -p "/run/$0/devices"
unattended install --reinstall "/srv/$(cd "$root/srv" && ls "$tools"_*)"
[ ! -e "$asked" ] || fail "an upgrade has asked for: $(cat "$asked")"
[ -L "$root/$enabled" ] && [ -d "$root/run/$0/devices" ] || fail "the service is not enabled after an upgrade"
tail -n 1 "$root/etc/$0.conf" | grep -Fx "devices eth0"

unattended remove "$tools"
grep -Fx "stop $0.service" "$asked" || fail "the service goes on"
[ -e "$root/etc/$0.conf" ] || fail "the configuration went before a purge"
unattended purge "$tools" "$0-dkms"
mv "$invoke.away" "$invoke"
left=$(inside find / -xdev -name "*$0*" -not -path '/srv/*' -not -path /etc/apt/apt.conf.d/90mflow \
	-not -path /etc/dpkg/dpkg.cfg.d/mflow)
[ -z "$left" ] || fail "the packages have left behind: $left"
inside apt-get autoclean
