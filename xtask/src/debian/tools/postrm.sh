#!/bin/sh
# SPDX-License-Identifier: GPL-2.0

set -e

if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
	systemctl --system daemon-reload > /dev/null || true
fi
if [ "$1" = purge ]; then
	rm -rf /run/mflow
	if command -v deb-systemd-helper > /dev/null; then
		deb-systemd-helper purge mflow.service > /dev/null || true
	fi
fi
