// SPDX-License-Identifier: GPL-2.0

//! Docker Swarm's ingress network: a sandbox takes what is sent to a published port for any node, and balances it to tasks by IPVS. The
//! sandbox and its task are both at the bridge that the tunnel is at, so the elephant passes that bridge twice.

use std::fmt::Write as _;
use std::net::Ipv4Addr;

use anyhow::Result;
use mflow_protocol::network::CONTAINER_MAC;

use crate::hosts::host::{Host, CONTAINER2, VETH2};
use crate::hosts::router::CONTAINER2_MAC;
use crate::hosts::services::balancer::{Balancer, Choice, IN_ORDER};
use crate::hosts::services::cluster::{Front, PORTS};
use crate::hosts::Case;
use crate::machine::command;
use crate::network::topology::{self, Family, CONTAINER};
use crate::network::{iptables, netns};

const SANDBOX: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 2);
const TASK: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 3);
/// The mark of the service.
const MARK: u32 = 0x100;

pub(super) fn cases() -> Vec<Case> {
    vec![Case::new(
        "docker/swarm",
        "the sandbox of Docker Swarm's ingress network, which balances by marks and IPVS",
        "what Swarm's sandbox balances by IPVS comes to the task beside a fast flow as with enabled 0",
        ingress,
    )
    .with_fate(IN_ORDER)]
}

fn ingress(host: &Host) -> Result<()> {
    let balancer = Balancer {
        address: SANDBOX.into(),
        front: Front::NodePort,
        namespace: Some(CONTAINER),
        endpoints: vec![(CONTAINER2, TASK.into())],
        choice: Choice::Any,
        is_masquerading: true,
        fate: IN_ORDER,
        ask: || Ok(0),
    };
    balancer.compare(host, set_up)
}

fn set_up() -> Result<()> {
    netns::add(CONTAINER2)?;
    topology::ip(&format!(
        "link add {VETH2} type veth peer name eth0 address {CONTAINER2_MAC} netns {CONTAINER2}
         link set {VETH2} master br0
         link set {VETH2} up"
    ))?;
    command::run(&format!(
        "bridge fdb replace {CONTAINER2_MAC} dev {VETH2} master static"
    ))?;
    topology::ip_in(
        CONTAINER2,
        &format!(
            "link set lo up
             link set eth0 up mtu {}
             addr add {TASK}/24 dev eth0
             neigh replace {SANDBOX} lladdr {CONTAINER_MAC} dev eth0",
            Family::V4.overlay_mtu()
        ),
    )?;
    topology::container_ip(&format!(
        "neigh replace {TASK} lladdr {CONTAINER2_MAC} dev eth0"
    ))?;
    command::run("modprobe ip_vs")?;
    netns::within(CONTAINER, || {
        for (name, value) in [
            ("net/ipv4/ip_forward", "1"),
            ("net/ipv4/conf/all/send_redirects", "0"),
            ("net/ipv4/conf/eth0/send_redirects", "0"),
            ("net/ipv4/vs/conntrack", "1"),
        ] {
            topology::sysctl(name, value)?;
        }
        Ok(())
    })?;
    let [sandbox, task] = rules()?;
    iptables::restore(CONTAINER, Family::V4, &sandbox)?;
    iptables::restore(CONTAINER2, Family::V4, &task)?;
    let service = format!("-A -f {MARK} -s rr\n-a -f {MARK} -r {TASK}:0 -m -w 1\n");
    let balance = format!("ip netns exec {CONTAINER} ipvsadm --restore");
    command::run_with_input(&balance, &service).map(drop)
}

/// Returns the rules of the sandbox, and of the task.
fn rules() -> Result<[String; 2]> {
    let mut sandbox = "*mangle\n".to_owned();
    let mut task = "*nat\n".to_owned();
    for port in PORTS {
        let (protocol, node) = (port.protocol, port.node);
        let matches = format!("-p {protocol} -m {protocol} --dport {node}");
        writeln!(
            sandbox,
            "-A PREROUTING {matches} -j MARK --set-xmark {MARK:#x}/0xffffffff"
        )?;
        writeln!(
            task,
            "-A PREROUTING -d {TASK}/32 {matches} -j REDIRECT --to-ports {}",
            port.target
        )?;
    }
    writeln!(
        sandbox,
        "COMMIT
*nat
-A POSTROUTING -d 10.0.1.0/24 -m ipvs --ipvs -j SNAT --to-source {SANDBOX}
COMMIT"
    )?;
    writeln!(task, "COMMIT")?;
    Ok([sandbox, task])
}
