//! Addresses that are meant together: one, or all that begin with the same bits.

use std::net::IpAddr;
use std::str::FromStr;

use super::value::ListItem;

/// One address, or all that share their first bits with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subnet {
    address: IpAddr,
    /// How many bits are shared.
    bits: u32,
}

impl Subnet {
    /// Whether an address is one of them. Addresses of IPv4 that came by way of IPv6 are the same.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let apart = u32::from(own) ^ u32::from(other);
                apart.leading_zeros() >= self.bits
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let apart = u128::from(own) ^ u128::from(other);
                apart.leading_zeros() >= self.bits
            }
            _ => false,
        }
    }
}

impl FromStr for Subnet {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || format!("addresses such as 10.0.0.7 or 10.0.0.0/8, not {text:?}");
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.trim().parse().map_err(|_| expected())?;
        let all = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(all), |bits| bits.trim().parse().map_err(|_| expected()))?;
        if bits > all {
            return Err(expected());
        }
        Ok(Subnet { address, bits })
    }
}

impl ListItem for Subnet {
    fn read_item(text: &str) -> Result<Self, String> {
        text.parse()
    }

    fn write_item(&self) -> String {
        format!("{}/{}", self.address, self.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_told_apart_by_their_first_bits() {
        for (subnet, inside, outside) in [
            ("10.0.0.7", "10.0.0.7", "10.0.0.6"),
            ("10.0.0.0/8", "::ffff:10.9.9.9", "11.0.0.0"),
            ("0.0.0.0/0", "1.2.3.4", "::2"),
            ("fd00::/8", "fd12::1", "fe00::1"),
            ("::1", "::1", "127.0.0.1"),
        ] {
            let subnet: Subnet = subnet.parse().unwrap();
            assert!(subnet.contains(inside.parse().unwrap()), "{subnet:?}");
            assert!(!subnet.contains(outside.parse().unwrap()), "{subnet:?}");
        }
        for wrong in ["", "proxy", "10.0.0.0/33", "::/129", "10.0.0.0/-1", "10.0.0.0/x"] {
            assert!(wrong.parse::<Subnet>().is_err(), "{wrong}");
        }
    }
}
