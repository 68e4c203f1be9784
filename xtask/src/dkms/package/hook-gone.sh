#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# Forgets a kernel that goes.

program=/usr/lib/@PACKAGE@/install-for
# It may be gone, and this file left of it.
[ ! -x "$program" ] || "$program"
exit 0
