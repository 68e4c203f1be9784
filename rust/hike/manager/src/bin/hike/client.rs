// SPDX-License-Identifier: GPL-2.0

//! The way to the daemon.

use std::path::Path;
use std::time::Duration;

use anyhow::{anyhow, Context as _, Result};
use mflow_hike_manager::v1::manager_client::ManagerClient;
use tonic::transport::{Channel, Endpoint};
use tonic::{Response, Status};

/// The largest message that the daemon sends or takes.
const MOST_MESSAGE_BYTES: usize = 64 << 20;
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) type Client = ManagerClient<Channel>;

pub(crate) async fn connect(socket: &Path) -> Result<Client> {
    let missing = || {
        format!(
            "cannot reach hiked at {}; start it, or say where it listens with --socket",
            socket.display()
        )
    };
    let socket = std::path::absolute(socket)?;
    let endpoint = Endpoint::try_from(format!("unix://{}", socket.display()))?;
    let channel = endpoint.connect_timeout(PATIENCE).connect().await;
    // What lies below is about transports and sources of errors.
    let channel = channel.map_err(|_| anyhow!(missing()))?;
    Ok(ManagerClient::new(channel)
        .max_decoding_message_size(MOST_MESSAGE_BYTES)
        .max_encoding_message_size(MOST_MESSAGE_BYTES))
}

/// Returns the answer, or what the daemon says is wrong.
pub(crate) fn said<T>(answer: Result<Response<T>, Status>) -> Result<T> {
    match answer {
        Ok(response) => Ok(response.into_inner()),
        // The daemon's sentence.
        Err(status) => Err(anyhow!("{}", status.message())),
    }
}

/// Returns a part of a message that every daemon sends.
pub(crate) fn there<T>(part: Option<T>) -> Result<T> {
    part.context("hiked has left out a part of its answer")
}
