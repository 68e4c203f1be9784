// SPDX-License-Identifier: GPL-2.0

//! TLS in the kernel, without a handshake: both ends have the keys of one direction from the start.

use std::net::TcpStream;

use anyhow::{Context as _, Result};
use nix::libc;
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::{TcpTlsRx, TcpTlsTx, TcpUlp, TlsCryptoInfo};

/// Returns the parameters that both ends agree on: TLS 1.3 with AES-128 in Galois/Counter Mode, from the first record on.
fn keys() -> TlsCryptoInfo {
    TlsCryptoInfo::Aes128Gcm(libc::tls12_crypto_info_aes_gcm_128 {
        info: libc::tls_crypto_info {
            version: libc::TLS_1_3_VERSION,
            cipher_type: libc::TLS_CIPHER_AES_GCM_128,
        },
        iv: [1; 8],
        key: [2; 16],
        salt: [3; 4],
        rec_seq: [0; 8],
    })
}

fn prepare(socket: &TcpStream) -> Result<()> {
    setsockopt(socket, TcpUlp::default(), b"tls").context("this kernel has no TLS")
}

/// Encrypts what is written to the socket from here on.
pub(crate) fn encrypt(socket: &TcpStream) -> Result<()> {
    prepare(socket)?;
    setsockopt(socket, TcpTlsTx, &keys()).context("TLS_TX")
}

/// Decrypts what is read from the socket from here on.
pub(crate) fn decrypt(socket: &TcpStream) -> Result<()> {
    prepare(socket)?;
    setsockopt(socket, TcpTlsRx, &keys()).context("TLS_RX")
}
