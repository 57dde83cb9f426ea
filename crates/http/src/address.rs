//! Which addresses a request may connect to.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A range of addresses: `127.0.0.1`, `10.0.0.0/8`, `fd00::/8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRange {
    address: IpAddr,
    bits: u8,
}

impl AddressRange {
    /// Whether the address lies in the range.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, plain(address)) {
            (IpAddr::V4(range), IpAddr::V4(address)) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.bits)).unwrap_or(0);
                range.to_bits() & mask == address.to_bits() & mask
            }
            (IpAddr::V6(range), IpAddr::V6(address)) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.bits)).unwrap_or(0);
                range.to_bits() & mask == address.to_bits() & mask
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

/// A text that is no range of addresses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no range of addresses; write one like 127.0.0.1 or 10.0.0.0/8")]
pub struct BadRange {
    /// The text.
    pub text: String,
}

impl FromStr for AddressRange {
    type Err = BadRange;

    fn from_str(text: &str) -> Result<AddressRange, BadRange> {
        let bad = || BadRange { text: text.to_string() };
        let (address, bits) =
            text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address: IpAddr = address.parse().map_err(|_| bad())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(most), |bits| bits.parse().map_err(|_| bad()))?;
        if bits > most { Err(bad()) } else { Ok(AddressRange { address, bits }) }
    }
}

/// Lets through public addresses, and those that the host allows.
#[derive(Clone, Debug, Default)]
pub struct AddressGuard {
    /// Addresses that are let through although they are not public.
    pub allowed: Vec<AddressRange>,
}

impl AddressGuard {
    /// Whether a request may connect to the address.
    pub fn allows(&self, address: IpAddr) -> bool {
        is_public(address) || self.allowed.iter().any(|range| range.contains(address))
    }
}

/// The IPv4 address that an IPv6 address stands for on this host, or the address itself.
fn plain(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(address, IpAddr::V4),
        IpAddr::V4(_) => address,
    }
}

/// Whether anybody on the internet could reach the address. Special ranges of the IANA registries are not public.
fn is_public(address: IpAddr) -> bool {
    match plain(address) {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => is_public_v6(v6),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let is_special = a == 0
        || address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_documentation()
        // Shared by carriers (RFC 6598).
        || (a == 100 && (64..128).contains(&b))
        // Protocol assignments (RFC 6890), 6to4 relays (RFC 7526), benchmarks (RFC 2544).
        || (a == 192 && b == 0 && c == 0)
        || (a == 192 && b == 88 && c == 99)
        || (a == 198 && (b == 18 || b == 19))
        // Reserved, and the broadcast.
        || a >= 240;
    !is_special
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let [a, b, c, ..] = address.segments();
    let embedded = |at: usize| {
        let octets = address.octets();
        Ipv4Addr::new(octets[at], octets[at + 1], octets[at + 2], octets[at + 3])
    };
    match (a, b, c) {
        // Addresses that carry an IPv4 address are as public as that one: NAT64 (RFC 6052) and 6to4 (RFC 3056).
        (0x64, 0xff9b, 0) => is_public_v4(embedded(12)),
        (0x2002, ..) => is_public_v4(embedded(2)),
        // Teredo, and the rest of the protocol assignments.
        (0x2001, 0..=0x1ff, _) => false,
        // Documentation.
        (0x2001, 0xdb8, _) | (0x3fff, 0..=0xfff, _) => false,
        // Only this part is handed out as global unicast.
        _ => (0x2000..0x4000).contains(&a),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard(allowed: &[&str]) -> AddressGuard {
        AddressGuard { allowed: allowed.iter().map(|range| range.parse().unwrap()).collect() }
    }

    #[test]
    fn only_public_addresses_are_let_through() {
        let guard = guard(&[]);
        for public in
            ["1.1.1.1", "100.63.0.1", "100.128.0.1", "192.0.1.1", "2606:4700::1111", "64:ff9b::101:101"]
        {
            assert!(guard.allows(public.parse().unwrap()), "{public}");
        }
        for private in [
            "0.0.0.0",
            "0.1.2.3",
            "10.1.2.3",
            "100.64.0.1",
            "127.0.0.1",
            "127.9.9.9",
            "169.254.169.254",
            "172.16.0.1",
            "192.0.0.8",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::1",
            "100::1",
            "2001::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "3fff::1",
            "5f00::1",
            "fc00::1",
            "fd12::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(!guard.allows(private.parse().unwrap()), "{private}");
        }
    }

    #[test]
    fn a_range_lets_through_what_lies_in_it() {
        let guard = guard(&["127.0.0.1", "10.0.0.0/8", "fd00::/8"]);
        for inside in ["127.0.0.1", "::ffff:127.0.0.1", "10.255.0.1", "fd12::1"] {
            assert!(guard.allows(inside.parse().unwrap()), "{inside}");
        }
        for outside in ["127.0.0.2", "::1", "192.168.0.1", "fc12::1"] {
            assert!(!guard.allows(outside.parse().unwrap()), "{outside}");
        }
        let everything: AddressRange = "0.0.0.0/0".parse().unwrap();
        assert!(everything.contains("9.9.9.9".parse().unwrap()));
        for bad in ["", "localhost", "10.0.0.0/33", "::/129", "10.0.0.0/", "10/8"] {
            assert!(bad.parse::<AddressRange>().is_err(), "{bad}");
        }
    }
}
