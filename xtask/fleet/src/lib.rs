// SPDX-License-Identifier: GPL-2.0

//! Files with which others run mflow and HIKE on many machines: Kubernetes, Prometheus, Grafana, Ansible. They are beside this crate, and
//! its README says what each is for. The crate reads queries out of them ([`query`]), so that `cargo xtask test tidy` can give them to Prometheus'
//! own checker. Its tests hold the files to the commands of this project, to what these export, and to published schemas.

#![deny(unsafe_code)]

pub mod query;
