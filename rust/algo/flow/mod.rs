// SPDX-License-Identifier: GPL-2.0

//! The life of a flow: [`table`] counts the packets of each, `state` has the six states, [`transitions`] the events that lead from one
//! to the next, and `lifecycle` the code of these events; `fenced` says from which packet on a flow is split, and [`hint`](super::headers::hint) what an XDP
//! program asks for. [`dispatcher`] decides for each packet of a split flow which batch, and so which lane, carries it; `poll_pace` tells
//! when no lane is needed. [`work_counts`] says how much each core has carried, and `news` tells people.

pub mod dispatcher;
mod fenced_flows;
mod lifecycle;
mod news;
mod poll_pace;
mod run;
mod state;
pub mod table;
pub mod transitions;
pub mod work_counts;
