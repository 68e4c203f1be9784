// SPDX-License-Identifier: GPL-2.0

//! Changes of the host under load: CPUs, routes, devices, namespaces and sockets come and go.

pub(crate) mod hotplug;
pub(crate) mod routes;
pub(crate) mod teardown;
