#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# Stops the service if the package is removed, and not for an upgrade.

set -e

[ "$1" = remove ] || exit 0
# Nobody is there later to take back what was not confirmed.
record=/run/mflow/unconfirmed.json
if [ -e $record ]; then
	mflow go-back "$(sed -n 's/.*"name":"\([^"]*\)".*/\1/p' $record)" || true
fi
if [ -d /run/systemd/system ]; then
	deb-systemd-invoke stop mflow.service > /dev/null || true
fi
