//! Bytes as people write and read them.

/// Units from the second on, each 1024 of the one before.
const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];

/// `1.5 GiB`.
pub(crate) fn bytes(n: u64) -> String {
    let (value, decimals, unit) = in_units(n);
    format!("{value:.decimals$} {unit}")
}

/// The same, rounded up: what is asked for must be enough when it is given.
pub(crate) fn bytes_enough(n: u64) -> String {
    let (value, decimals, unit) = in_units(n);
    let steps = 10f64.powi(decimals as i32);
    format!("{:.decimals$} {unit}", (value * steps).ceil() / steps)
}

/// A number of bytes in the largest unit of which there is one, with the decimals that it is shown with.
fn in_units(n: u64) -> (f64, usize, &'static str) {
    let mut value = n as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let decimals = if unit == 0 || value >= 100.0 { 0 } else { 1 };
    (value, decimals, UNITS[unit])
}

/// `512MiB` or `1.5GiB`, in any case; at least one byte.
pub(crate) fn parse_bytes(text: &str) -> Option<u64> {
    let lower = text.to_ascii_lowercase();
    let of_unit = |(power, unit): (usize, &&str)| {
        let number = lower.strip_suffix(&unit.to_ascii_lowercase())?.trim_end();
        let is_plain = number.bytes().all(|c| c.is_ascii_digit() || c == b'.');
        let value: f64 = number.parse().ok().filter(|_| is_plain)?;
        Some(value * 1024f64.powi(power as i32)).filter(|bytes| (1.0..1e18).contains(bytes))
    };
    UNITS.iter().enumerate().skip(1).find_map(of_unit).map(|bytes| bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_written() {
        assert_eq!(parse_bytes("2GiB"), Some(2 << 30));
        assert_eq!(parse_bytes("1.5mib"), Some(3 << 19));
        assert_eq!(parse_bytes("64 KiB"), Some(64 << 10));
        for text in
            ["", "GiB", "2", "2GB", "-1GiB", "1e3GiB", "nanGiB", "0GiB", "9999999TiB", "infGiB"]
        {
            assert_eq!(parse_bytes(text), None, "{text}");
        }
        assert_eq!((bytes(1023), bytes(3 << 29)), ("1023 B".into(), "1.5 GiB".into()));
    }

    #[test]
    fn what_is_asked_for_is_enough() {
        for n in [1024, 3 << 19, (8 << 20) + 30_310, 200 << 20, (1 << 30) - 1, (5 << 40) + 1] {
            let asked = bytes_enough(n);
            assert!(parse_bytes(&asked).is_some_and(|bytes| bytes >= n), "{n}: {asked}");
        }
        assert_eq!(bytes_enough((8 << 20) + 30_310), "8.1 MiB");
        assert_eq!((bytes_enough(7), bytes_enough(3 << 29)), ("7 B".into(), "1.5 GiB".into()));
    }
}
