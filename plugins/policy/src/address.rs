//! Address of the client behind trusted proxies, and the lists of addresses that may and may not ask.

use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;

use crate::settings::Settings;

/// Entries of `x-forwarded-for` that are looked at, from the nearest proxy on.
const MAX_HOPS: usize = 32;

/// Bits of an IPv6 address that tell callers apart: a household has the rest to choose from.
const IPV6_CALLER_BITS: u32 = 64;

/// Address of the client. A peer that is a trusted proxy is believed about whom it speaks for, and so on along
/// `x-forwarded-for` from its end, up to the first address that is not trusted. `None` if `peer` is no address.
pub(crate) fn client(
    settings: &Settings,
    peer: &str,
    headers: &[(String, String)],
) -> Option<IpAddr> {
    let mut client = plain(peer.parse().ok()?);
    let forwarded = headers
        .iter()
        .rev()
        .filter(|(name, _)| name == "x-forwarded-for");
    let mut hops = forwarded
        .flat_map(|(_, value)| value.rsplit(','))
        .take(MAX_HOPS);
    while within(&settings.trusted_proxies, client) {
        // What cannot be read ends the chain: the last address that was read is that of a proxy.
        let Some(hop) = hops.next().and_then(|hop| hop.trim().parse().ok()) else {
            break;
        };
        client = plain(hop);
    }
    Some(client)
}

/// Whether an address is in one of the networks.
pub(crate) fn within(networks: &[IpNet], address: IpAddr) -> bool {
    networks.iter().any(|network| network.contains(&address))
}

/// Name of the account of a caller that is known by its address only.
pub(crate) fn account(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => {
            let mask = !0u128 << (128 - IPV6_CALLER_BITS);
            Ipv6Addr::from_bits(address.to_bits() & mask).to_string()
        }
    }
}

/// An IPv4 address that is written as an IPv6 one is itself.
fn plain(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client_of(trusted: &str, peer: &str, forwarded: &[&str]) -> String {
        let settings = format!(r#"{{"trusted_proxies": {trusted}}}"#);
        let settings = Settings::parse(&settings).expect("settings");
        let headers: Vec<(String, String)> = forwarded
            .iter()
            .map(|value| ("x-forwarded-for".to_owned(), (*value).to_owned()))
            .collect();
        client(&settings, peer, &headers)
            .expect("an address")
            .to_string()
    }

    #[test]
    fn only_trusted_proxies_are_believed() {
        let trusted = r#"["10.0.0.0/8", "fd00::/8"]"#;
        for (peer, forwarded, client) in [
            ("192.0.2.1", &["198.51.100.7"][..], "192.0.2.1"),
            ("10.0.0.1", &["198.51.100.7"], "198.51.100.7"),
            // What stands before the first stranger is the stranger's own word.
            (
                "10.0.0.1",
                &["1.1.1.1, 198.51.100.7, 10.9.9.9"],
                "198.51.100.7",
            ),
            ("10.0.0.1", &["1.1.1.1", "198.51.100.7"], "198.51.100.7"),
            ("::ffff:10.0.0.1", &["2001:db8::1"], "2001:db8::1"),
            ("fd00::1", &["unknown"], "fd00::1"),
            ("10.0.0.1", &["10.0.0.2"], "10.0.0.2"),
            ("10.0.0.1", &[], "10.0.0.1"),
        ] {
            assert_eq!(client_of(trusted, peer, forwarded), client, "{forwarded:?}");
        }
        assert_eq!(client_of("[]", "10.0.0.1", &["1.1.1.1"]), "10.0.0.1");
    }

    #[test]
    fn a_household_is_one_caller() {
        let account = |text: &str| account(text.parse().expect("an address"));
        assert_eq!(account("2001:db8:1:2:3::4"), account("2001:db8:1:2::9"));
        assert_ne!(account("2001:db8:1:2::4"), account("2001:db8:1:3::4"));
        assert_ne!(account("192.0.2.1"), account("192.0.2.2"));
    }
}
