#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# Tells systemd of the units. Nothing is started or stopped: flows stay split through an upgrade, and splitting begins when the
# operator asks for it.

set -e

case $1 in
configure | abort-upgrade | abort-deconfigure | abort-remove) ;;
*) exit 0 ;;
esac
unit=mflow.service
if deb-systemd-helper debian-installed $unit; then
	deb-systemd-helper unmask $unit > /dev/null || true
	if deb-systemd-helper --quiet was-enabled $unit; then
		deb-systemd-helper enable $unit > /dev/null || true
	fi
fi
# A purge removes the links that are noted here.
deb-systemd-helper update-state $unit > /dev/null || true
if [ -d /run/systemd/system ]; then
	systemctl --system daemon-reload > /dev/null || true
fi
