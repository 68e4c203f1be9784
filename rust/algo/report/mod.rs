// SPDX-License-Identifier: GPL-2.0

//! Answers to people: [`flow_list`] is the file `flows`, made of a [`flow_report`] for each flow with its [`flow_name`](super::headers::flow_name) and the
//! [`reason`] why it is not split. [`seqlock`] lets readers see words of one moment, and [`change_log`] keeps what they are to be told of.

pub mod change_log;
pub mod flow_list;
pub mod flow_report;
pub mod reason;
pub mod seqlock;
