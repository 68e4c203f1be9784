#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# Has the module built for a kernel that comes. DKMS's own hook would leave the kernel's package half installed if that fails.

program=/usr/lib/@PACKAGE@/install-for
# It may be gone, and this file left of it.
[ ! -x "$program" ] || "$program" "$1"
exit 0
