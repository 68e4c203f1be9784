// SPDX-License-Identifier: GPL-2.0

//! The daemon: takes over what is in the kernel, and then does what it is told over its socket.

#![deny(unsafe_code)]

use std::process::ExitCode;

use anyhow::{ensure, Context as _, Result};
use clap::Parser as _;
use mflow_hike::Notice;
use mflow_hike_manager::manager::remove;
use mflow_hike_manager::options::Daemon;
use mflow_hike_manager::service::Service;
use mflow_hike_manager::socket::Place;
use mflow_hike_manager::v1::manager_server::ManagerServer;
use mflow_hike_manager::{link_events, routing_events, say, Devices, Manager, Store};
use rustix::fs::Mode;
use rustix::process::{geteuid, umask};
use tokio::signal::unix::{signal, SignalKind};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;

/// A configuration with all classes there can be has some 20 MB.
const MOST_MESSAGE_BYTES: usize = 64 << 20;

fn main() -> ExitCode {
    let options = Daemon::parse();
    // Nobody but root can open what is made here.
    umask(Mode::RWXG | Mode::RWXO);
    #[cfg(feature = "fail-points")]
    let _fail_points = fail::FailScenario::setup();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let done = runtime
        .map_err(anyhow::Error::from)
        .and_then(|runtime| runtime.block_on(run(&options)));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(format_args!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

async fn run(options: &Daemon) -> Result<()> {
    ensure!(geteuid().is_root(), "only root can run hiked");
    let store = Store::open(&options.pins)?;
    let devices = Devices::read().await?;
    if options.remove {
        return remove(&store, &devices);
    }
    // One who cannot be asked leaves the kernel as it is.
    let mut place = Place::take(&options.socket).await?;
    let notice = match options.no_tracing {
        true => Notice::Told,
        false => Notice::Traced,
    };
    let (manager, warnings) = Manager::start(store, &devices, notice)?;
    warnings.iter().for_each(say);
    let service = Service::new(manager);
    let file = options.file.clone();
    // What has just been attached is attached now. The one who mends the file needs the daemon.
    let devices = Devices::read().await?;
    let said = service.devices_changed(devices.clone(), file).await;
    said.iter().for_each(say);
    let listener = place.listen().await?;
    let mut terminated = signal(SignalKind::terminate())?;
    let mut interrupted = signal(SignalKind::interrupt())?;
    let events = link_events::watch(&service, &options.file, devices);
    let routing = routing_events::watch(&service);
    let server = ManagerServer::new(service.clone())
        .max_decoding_message_size(MOST_MESSAGE_BYTES)
        .max_encoding_message_size(MOST_MESSAGE_BYTES);
    let server = Server::builder()
        .add_service(server)
        .serve_with_incoming(UnixListenerStream::new(listener));
    // Those that watch would hold up a server that waits for all: what is cut off is settled at the next start.
    tokio::select! {
        ended = events => ended?,
        ended = routing => ended?,
        ended = server => ended.context("cannot serve")?,
        _ = terminated.recv() => {}
        _ = interrupted.recv() => {}
    }
    place.leave()
}
