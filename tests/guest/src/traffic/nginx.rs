// SPDX-License-Identifier: GPL-2.0

//! A web server with one file, for cases and benchmarks.

use std::fs;

use anyhow::{Context as _, Result};

const FOLDER: &str = "/tmp/nginx";
/// The file that is served as `/file`.
const FILE: &str = "/tmp/nginx/www/file";

/// Makes a folder with a file to serve, and a configuration that needs nothing else of the distribution's; returns the command
/// line. `/served` says how many requests have been answered.
pub(crate) fn prepare(port: u16, content: &[u8]) -> Result<String> {
    fs::create_dir_all(format!("{FOLDER}/www")).context(FOLDER)?;
    fs::write(FILE, content).context(FILE)?;
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|name| format!("{name}_temp_path {FOLDER}/{name};\n"))
        .collect();
    let text = format!(
        "user root root;\ndaemon off;\nmaster_process off;\nerror_log stderr;\npid {FOLDER}/pid;\nevents {{}}\n\
         http {{\n{temporary}access_log off;\nsendfile on;\ntcp_nopush on;\nkeepalive_requests 1000000000;\n\
         server {{\nlisten {port};\nroot {FOLDER}/www;\nlocation = /served {{ stub_status; }}\n}}\n}}\n"
    );
    fs::write(format!("{FOLDER}/nginx.conf"), text).context(FOLDER)?;
    Ok(format!("nginx -p {FOLDER} -c {FOLDER}/nginx.conf"))
}

pub(crate) fn remove_file() -> Result<()> {
    fs::remove_file(FILE).context(FILE)
}
