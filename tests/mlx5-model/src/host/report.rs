// SPDX-License-Identifier: GPL-2.0

//! The state of a card's queues, in words: it explains a driver and a card that wait for each other.

use super::bus::Bus;
use super::device::Device;

impl Device {
    /// Returns a line with the link, the frames that have passed it, and all queues that are not empty or that the driver waits for,
    /// as numbers of entries.
    ///
    /// `receive 0x101: 12 buffers` is what the driver has posted and the card has not begun; `send 0x102: 3 entries`, with `rung` if
    /// the card knows of them; `completions 0x41: 5` are not read yet, with `armed` if the driver wants an event for the next one;
    /// `events 2 (vector 1): 1` likewise, `armed` for an interrupt.
    pub fn queues(&self, bus: &mut dyn Bus) -> String {
        let (sent, received) = self.traffic();
        let mut all = vec![format!(
            "link {}, {} sent, {} received",
            if self.port.up { "up" } else { "down" },
            sent.total().frames,
            received.total().frames
        )];
        for (number, queue) in self.receive_queues.iter() {
            let state = queue.state;
            let buffers = queue.buffers_left(bus);
            all.push(format!("receive {number:#x}: {state:?}, {buffers} buffers"));
        }
        for (number, queue) in self.send_queues.iter() {
            let left = queue.entries_left(bus);
            if left > 0 {
                let rung = if queue.rung { ", rung" } else { "" };
                let state = queue.state;
                all.push(format!("send {number:#x}: {state:?}, {left} entries{rung}"));
            }
        }
        all.extend(self.events.unread(bus));
        all.join("; ")
    }
}
