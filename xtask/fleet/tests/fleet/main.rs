// SPDX-License-Identifier: GPL-2.0

//! The files for many machines are held to the commands of this project, to what these export, and to published schemas.

mod commands;
mod dashboards;
mod kubernetes;
mod metrics;
mod module;
mod node;
mod support;
