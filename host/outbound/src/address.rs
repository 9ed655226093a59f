//! Addresses that a name may resolve to.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A block of addresses, such as `10.0.0.0/8`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    first: IpAddr,
    prefix: u32,
}

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
const SPECIAL_V4: [([u8; 4], u32); 16] = [
    ([0, 0, 0, 0], 8),
    ([10, 0, 0, 0], 8),
    ([100, 64, 0, 0], 10),
    ([127, 0, 0, 0], 8),
    ([169, 254, 0, 0], 16),
    ([172, 16, 0, 0], 12),
    ([192, 0, 0, 0], 24),
    ([192, 0, 2, 0], 24),
    ([192, 31, 196, 0], 24),
    ([192, 52, 193, 0], 24),
    ([192, 88, 99, 0], 24),
    ([192, 168, 0, 0], 16),
    ([198, 18, 0, 0], 15),
    ([198, 51, 100, 0], 24),
    ([203, 0, 113, 0], 24),
    // Multicast, reserved, broadcast.
    ([224, 0, 0, 0], 3),
];

/// Blocks of `2000::/3`, which holds all public IPv6 addresses, that are not public or carry an IPv4
/// address in them.
const SPECIAL_V6: [([u16; 8], u32); 4] = [
    // Protocol assignments, Teredo, ORCHID.
    ([0x2001, 0, 0, 0, 0, 0, 0, 0], 23),
    ([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32),
    // 6to4.
    ([0x2002, 0, 0, 0, 0, 0, 0, 0], 16),
    ([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20),
];

const PUBLIC_V6: ([u16; 8], u32) = ([0x2000, 0, 0, 0, 0, 0, 0, 0], 3);

/// Whether an address belongs to the public internet. An IPv4 address that is mapped into IPv6 counts
/// as itself.
pub fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            let mut special = SPECIAL_V4.iter();
            !special.any(|(first, prefix)| {
                let first = Ipv4Addr::from(*first).to_bits();
                same_prefix_v4(address.to_bits(), first, *prefix)
            })
        }
        IpAddr::V6(address) => {
            let within = |(first, prefix): &([u16; 8], u32)| {
                same_prefix_v6(address.to_bits(), Ipv6Addr::from(*first).to_bits(), *prefix)
            };
            within(&PUBLIC_V6) && !SPECIAL_V6.iter().any(within)
        }
    }
}

impl Network {
    /// Whether an address is in the block.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.first, address.to_canonical()) {
            (IpAddr::V4(first), IpAddr::V4(address)) => {
                same_prefix_v4(address.to_bits(), first.to_bits(), self.prefix)
            }
            (IpAddr::V6(first), IpAddr::V6(address)) => {
                same_prefix_v6(address.to_bits(), first.to_bits(), self.prefix)
            }
            _ => false,
        }
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let network = text.split_once('/').and_then(|(first, prefix)| {
            let first: IpAddr = first.parse().ok()?;
            let bits = if first.is_ipv4() { 32 } else { 128 };
            let prefix: u32 = prefix.parse().ok()?;
            (prefix <= bits).then_some(Self { first, prefix })
        });
        network.ok_or_else(|| NetworkError {
            text: text.to_owned(),
        })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.first, self.prefix)
    }
}

/// Whether two addresses agree in their first `prefix` bits.
fn same_prefix_v4(one: u32, two: u32, prefix: u32) -> bool {
    (one ^ two).leading_zeros() >= prefix
}

fn same_prefix_v6(one: u128, two: u128, prefix: u32) -> bool {
    (one ^ two).leading_zeros() >= prefix
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
