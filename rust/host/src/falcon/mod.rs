// SPDX-License-Identifier: GPL-2.0

//! FALCON's dynamic balancing with a choice for each flow, whenever that may move, for the simulator. The module decides for all
//! flows at once instead ([`stage_plan`](crate::algo::load::stage_plan)), and moves them when no stage has a packet.

pub mod balancer;
pub mod stage_path;
