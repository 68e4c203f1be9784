// SPDX-License-Identifier: GPL-2.0

//! FALCON's dynamic balancing, which the module does not have: its stages stay where
//! [`first_choice`](crate::algo::stage::first_choice) puts them. The simulator shows what balancing would bring. When the glue
//! uses these files, they belong in `rust/algo`.

pub mod balancer;
pub mod stage_path;
