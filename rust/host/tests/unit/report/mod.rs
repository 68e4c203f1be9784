// SPDX-License-Identifier: GPL-2.0

//! Tests of what people are told.

mod change_log;
#[cfg(not(miri))]
mod flow_list;
#[cfg(not(miri))]
mod flow_name;
#[cfg(not(miri))]
mod reasons;
mod seqlock;
