// SPDX-License-Identifier: GPL-2.0

//! Commands of Linux's driver, recorded once, are carried out again: each ends as it did, and nothing is left over.

use mlx5_model::host::device::Config;
use mlx5_model::host::journal;

use crate::driver::Driver;

/// A guest loaded the driver, brought both cards up and down, and unloaded it.
pub(crate) const RECORDED: [(&str, bool); 2] = [
    (include_str!("../recorded/cyclic.log"), false),
    (include_str!("../recorded/striding.log"), true),
];

#[test]
fn recorded_commands_end_as_they_did() {
    for (text, striding) in RECORDED {
        let config = Config {
            striding,
            compression: true,
            ..Config::default()
        };
        let mut driver = Driver::new(config);
        let mut most = 0;
        for line in text.lines().filter(|line| line.starts_with("0 ")) {
            let recorded = journal::parse(line).expect("a recorded command");
            let operation = u16::from_be_bytes([recorded.input[0], recorded.input[1]]);
            let mut input = recorded.input.clone();
            let (status, _) = driver.command(operation, &mut input, recorded.output_bytes);
            assert_eq!(status, recorded.status, "{line}");
            most = most.max(driver.device.objects());
        }
        assert!(most > 20, "the driver had {most} objects");
        let device = &driver.device;
        assert_eq!((device.objects(), device.left_behind()), (0, 0));
        assert_eq!(device.unknown_commands(), 0);
    }
}
