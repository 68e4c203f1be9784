// SPDX-License-Identifier: GPL-2.0

//! Devices and addresses that come, change and go while the daemon runs, as the kernel tells over netlink.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures_util::{FutureExt as _, StreamExt as _};
use rtnetlink::packet_core::{NetlinkMessage, NetlinkPayload};
use rtnetlink::packet_route::link::LinkFlags;
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::MulticastGroup;
use tokio::time::{sleep, timeout};

use crate::devices::{Device, Devices};
use crate::say;
use crate::service::Service;

/// The time within which messages are taken together, as when a device is made, named and set up: then devices are looked at
/// once.
const TOGETHER: Duration = Duration::from_millis(50);

/// The time after which the host is looked at again even if nothing is told: of some changes the kernel tells nobody.
const LOOK: Duration = Duration::from_secs(1);

/// The changes that are told.
const TOLD: [MulticastGroup; 3] = [
    MulticastGroup::Link,
    MulticastGroup::Ipv4Ifaddr,
    MulticastGroup::Ipv6Ifaddr,
];

/// Applies the configuration to devices whenever one comes, goes, or gets another name, Ethernet address or MTU. Until anything is
/// configured, that means to apply a file. `known` are the devices at the time of the last application.
pub async fn watch(service: &Service, file: &Path, mut known: Devices) -> Result<()> {
    let (connection, _handle, mut messages) = rtnetlink::new_multicast_connection(&TOLD)
        .context("cannot listen to the kernel's messages about devices")?;
    tokio::spawn(connection);
    // The first time, too: devices may have come before this has begun to listen.
    let (mut told, mut lost) = (true, false);
    let mut trouble = None;
    loop {
        if told {
            let devices = Devices::read().await?;
            // Programs that come and go, and all else that is told of devices, are nothing to act upon.
            if lost || !devices.are_those_of(&known) {
                known = devices.clone();
                let said = service.devices_changed(devices, file.to_owned()).await;
                said.iter().for_each(say);
            }
        }
        let before = std::mem::replace(&mut trouble, service.follow().await);
        if let Some(line) = trouble.as_ref().filter(|_| trouble != before) {
            say(line);
        }
        let ended = "the kernel's messages about devices have ended";
        let Ok(message) = timeout(LOOK, messages.next()).await else {
            told = false;
            continue;
        };
        told = true;
        lost = is_loss(&message.context(ended)?.0, &known);
        sleep(TOGETHER).await;
        while let Some((message, _)) = messages.next().now_or_never().flatten() {
            lost |= is_loss(&message, &known);
        }
    }
}

/// Returns whether a device that was up has gone or is down. It may be there again when its turn comes, but routes and numbers in tables are lost.
fn is_loss(message: &NetlinkMessage<RouteNetlinkMessage>, known: &Devices) -> bool {
    match &message.payload {
        NetlinkPayload::InnerMessage(RouteNetlinkMessage::DelLink(_)) => true,
        NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)) => {
            let was_up = |device: &Device| device.index == link.header.index && device.is_up;
            !link.header.flags.contains(LinkFlags::Up) && known.iter().any(|(_, one)| was_up(one))
        }
        _ => false,
    }
}
