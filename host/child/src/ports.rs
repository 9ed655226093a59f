//! Ports of child processes.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::sync::{Arc, Mutex, PoisonError};

use crate::arguments::HOST;
use crate::limits::MAX_PORTS_TRIED;

/// Ports that this server has given to its processes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ports(Arc<Mutex<BTreeSet<u16>>>);

/// A port of one process, free again when it is dropped.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) number: u16,
    ports: Ports,
    /// Keeps other servers of this machine from giving it to theirs.
    _claim: Claim,
}

/// Claim on a port, which other servers of this machine see, that a process is about to listen on: a name that only one
/// can have, and that is free when its holder has ended, however it did.
#[cfg(target_os = "linux")]
type Claim = std::os::unix::net::UnixListener;
#[cfg(not(target_os = "linux"))]
type Claim = ();

#[cfg(target_os = "linux")]
fn claim(port: u16) -> Option<Claim> {
    use std::os::linux::net::SocketAddrExt as _;
    use std::os::unix::net::{SocketAddr, UnixListener};
    let name = SocketAddr::from_abstract_name(format!("mortise-child-port-{port}")).ok()?;
    UnixListener::bind_addr(&name).ok()
}

#[cfg(not(target_os = "linux"))]
fn claim(_: u16) -> Option<Claim> {
    Some(())
}

impl Ports {
    /// The first port from `base` that nobody listens on and no process of ours has; `None` if there is none
    /// near it.
    pub(crate) fn take(&self, base: u16) -> Option<Port> {
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let last = base.saturating_add(MAX_PORTS_TRIED);
        let free = |port: u16| {
            let claim = claim(port).filter(|_| !taken.contains(&port))?;
            TcpListener::bind((HOST, port)).ok()?;
            Some((port, claim))
        };
        let (number, claim) = (base..=last).find_map(free)?;
        taken.insert(number);
        Some(Port {
            number,
            ports: self.clone(),
            _claim: claim,
        })
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        let mut taken = self.ports.0.lock().unwrap_or_else(PoisonError::into_inner);
        taken.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn feature_b1_ports_go_up_from_the_first_past_those_in_use() {
        let used = TcpListener::bind((HOST, 0)).expect("a port");
        let base = used.local_addr().expect("its address").port();
        let ports = Ports::default();
        let first = ports.take(base).expect("a port");
        assert!(first.number > base);
        let second = ports.take(base).expect("another");
        assert!(second.number > first.number);
        let number = first.number;
        drop(first);
        assert_eq!(ports.take(number).expect("it is free again").number, number);
    }
}
