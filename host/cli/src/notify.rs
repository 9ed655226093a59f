//! Messages to the service manager: that the server is ready, stops, or has another main process.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use std::sync::atomic::{AtomicBool, Ordering};

use mortise_config::notify_socket;

/// Another process speaks for the server from now on.
static REPLACED: AtomicBool = AtomicBool::new(false);

/// The server answers.
pub(crate) fn ready() {
    tell("READY=1");
}

/// The server ends.
pub(crate) fn stopping() {
    tell("STOPPING=1");
}

/// Another process goes on in the place of this one.
pub(crate) fn main_process(process: u32) {
    tell(&format!("MAINPID={process}\nREADY=1"));
    REPLACED.store(true, Ordering::Relaxed);
}

fn tell(state: &str) {
    let name = notify_socket().filter(|_| !REPLACED.load(Ordering::Relaxed));
    let Some(name) = name else {
        return;
    };
    let address = match name.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&name),
    };
    let sent = address.and_then(|address| {
        let socket = UnixDatagram::unbound()?;
        socket.send_to_addr(state.as_bytes(), &address)
    });
    if let Err(error) = sent {
        tracing::warn!(%error, "the service manager cannot be told of the server's state");
    }
}
