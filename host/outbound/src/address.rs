//! Addresses that a name may resolve to.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// A block of addresses, such as `10.0.0.0/8`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network(IpNet);

/// A text is no block of addresses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is no network; write an address and the length of its prefix, such as 10.0.0.0/8"
)]
pub struct NetworkError {
    text: String,
}

/// IPv4 blocks that are not part of the public internet (IANA's registry of special addresses, with
/// multicast and what is reserved).
const SPECIAL_V4: [Ipv4Net; 16] = [
    v4([0, 0, 0, 0], 8),
    v4([10, 0, 0, 0], 8),
    v4([100, 64, 0, 0], 10),
    v4([127, 0, 0, 0], 8),
    v4([169, 254, 0, 0], 16),
    v4([172, 16, 0, 0], 12),
    v4([192, 0, 0, 0], 24),
    v4([192, 0, 2, 0], 24),
    v4([192, 31, 196, 0], 24),
    v4([192, 52, 193, 0], 24),
    v4([192, 88, 99, 0], 24),
    v4([192, 168, 0, 0], 16),
    v4([198, 18, 0, 0], 15),
    v4([198, 51, 100, 0], 24),
    v4([203, 0, 113, 0], 24),
    // Multicast, reserved, broadcast.
    v4([224, 0, 0, 0], 3),
];

/// Block that holds all public IPv6 addresses.
const PUBLIC_V6: Ipv6Net = v6([0x2000, 0], 3);

/// Blocks of `PUBLIC_V6` that are not public or carry an IPv4 address in them.
const SPECIAL_V6: [Ipv6Net; 4] = [
    // Protocol assignments, Teredo, ORCHID.
    v6([0x2001, 0], 23),
    v6([0x2001, 0xdb8], 32),
    // 6to4.
    v6([0x2002, 0], 16),
    v6([0x3fff, 0], 20),
];

const fn v4([a, b, c, d]: [u8; 4], prefix: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix)
}

const fn v6([a, b]: [u16; 2], prefix: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, 0, 0, 0, 0, 0, 0), prefix)
}

/// Whether an address belongs to the public internet. An IPv4 address that is mapped into IPv6 counts
/// as itself.
pub fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => !SPECIAL_V4.iter().any(|block| block.contains(&address)),
        IpAddr::V6(address) => {
            PUBLIC_V6.contains(&address) && !SPECIAL_V6.iter().any(|block| block.contains(&address))
        }
    }
}

impl Network {
    /// Whether an address is in the block. An IPv4 address that is mapped into IPv6 counts as itself.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(&address.to_canonical())
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        text.parse().map(Self).map_err(|_| NetworkError {
            text: text.to_owned(),
        })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn public(text: &str) -> bool {
        is_public(text.parse().expect("an address"))
    }

    #[test]
    fn i1_addresses_that_are_not_public_are_known() {
        for text in [
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.255.254",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.8",
            "192.168.1.1",
            "198.19.255.255",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "::ffff:10.0.0.1",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "100::1",
            "2001::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "fc00::1",
            "fd12:3456::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(!public(text), "{text}");
        }
        for text in [
            "1.1.1.1",
            "8.8.8.8",
            "100.63.255.255",
            "100.128.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.1",
            "223.255.255.255",
            "::ffff:8.8.8.8",
            "2606:4700:4700::1111",
            "2a00:1450::1",
        ] {
            assert!(public(text), "{text}");
        }
    }

    #[test]
    fn networks_hold_what_their_prefix_says() {
        let network: Network = "10.1.0.0/16".parse().expect("a network");
        let holds = |text: &str| network.contains(text.parse().expect("an address"));
        assert!(holds("10.1.255.1") && holds("::ffff:10.1.0.1"));
        assert!(!holds("10.2.0.1") && !holds("::a01:1"));
        let all: Network = "::/0".parse().expect("a network");
        assert!(all.contains("fe80::1".parse().expect("an address")));
        assert!(!all.contains("1.2.3.4".parse().expect("an address")));
        for text in [
            "10.0.0.0",
            "10.0.0.0/33",
            "::/129",
            "a/8",
            "/8",
            "10.0.0.0/-1",
            "",
        ] {
            assert!(text.parse::<Network>().is_err(), "{text}");
        }
        assert_eq!(network.to_string(), "10.1.0.0/16");
    }
}
