#!/bin/sh
# SPDX-License-Identifier: GPL-2.0

set -e

if [ -n "$(dkms status -m @NAME@ -v @VERSION@)" ]; then
	dkms remove -m @NAME@ -v @VERSION@ --all
fi
if [ "$1" = remove ]; then
	rm -rf /var/lib/@PACKAGE@
fi
