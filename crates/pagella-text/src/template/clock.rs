//! `strftime_now` of chat templates: the current date in UTC, in Python's notation.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use minijinja::{Error, ErrorKind};

const DAYS: [&str; 7] =
    ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
/// Longest format string in bytes.
const FORMAT_BYTES_MAX: usize = 1024;

/// A moment taken apart.
struct Moment {
    year: i64,
    /// 0 for January.
    month: usize,
    day: u64,
    /// 0 for Monday.
    weekday: usize,
    /// 1 for the first of January.
    day_of_year: u64,
    hour: u64,
    minute: u64,
    second: u64,
    micros: u32,
}

/// Formats `now` with the directives that templates use; unknown ones are an error.
pub(super) fn strftime(now: SystemTime, format: &str) -> Result<String, Error> {
    if format.len() > FORMAT_BYTES_MAX {
        return Err(Error::new(ErrorKind::InvalidOperation, "the date format is too long"));
    }
    let m = moment(now.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO));
    let mut out = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let mut directive = chars.next();
        let unpadded = directive == Some('-');
        if unpadded {
            directive = chars.next();
        }
        let text = write(&m, directive).ok_or_else(|| {
            let name = directive.map(String::from).unwrap_or_default();
            Error::new(
                ErrorKind::InvalidOperation,
                format!("date directive %{name} is not supported"),
            )
        })?;
        let short = text.trim_start_matches('0');
        out.push_str(match (unpadded, short.is_empty()) {
            (true, true) => "0",
            (true, false) => short,
            (false, _) => &text,
        });
    }
    Ok(out)
}

fn write(m: &Moment, directive: Option<char>) -> Option<String> {
    let hour12 = (m.hour + 11) % 12 + 1;
    Some(match directive? {
        'Y' => m.year.to_string(),
        'y' => format!("{:02}", m.year.rem_euclid(100)),
        'm' => format!("{:02}", m.month + 1),
        'd' => format!("{:02}", m.day),
        'e' => format!("{:2}", m.day),
        'H' => format!("{:02}", m.hour),
        'I' => format!("{hour12:02}"),
        'M' => format!("{:02}", m.minute),
        'S' => format!("{:02}", m.second),
        'f' => format!("{:06}", m.micros),
        'j' => format!("{:03}", m.day_of_year),
        'p' => (if m.hour < 12 { "AM" } else { "PM" }).into(),
        'A' => DAYS[m.weekday].into(),
        'a' => DAYS[m.weekday][..3].into(),
        'B' => MONTHS[m.month].into(),
        'b' | 'h' => MONTHS[m.month][..3].into(),
        'w' => ((m.weekday + 1) % 7).to_string(),
        'u' => (m.weekday + 1).to_string(),
        'F' => format!("{}-{:02}-{:02}", m.year, m.month + 1, m.day),
        'D' => format!("{:02}/{:02}/{:02}", m.month + 1, m.day, m.year.rem_euclid(100)),
        'T' => format!("{:02}:{:02}:{:02}", m.hour, m.minute, m.second),
        'R' => format!("{:02}:{:02}", m.hour, m.minute),
        'Z' => "UTC".into(),
        'z' => "+0000".into(),
        'n' => "\n".into(),
        't' => "\t".into(),
        '%' => "%".into(),
        _ => return None,
    })
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn moment(since_epoch: Duration) -> Moment {
    let seconds = since_epoch.as_secs();
    let mut days = seconds / 86_400;
    // The first of January 1970 was a Thursday.
    let weekday = ((days + 3) % 7) as usize;
    // 400 years have 146,097 days; skip them first so that the loop is short.
    let mut year = 1970 + 400 * (days / 146_097) as i64;
    days %= 146_097;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let day_of_year = days + 1;
    let lengths = [31, 28 + u64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while days >= lengths[month] {
        days -= lengths[month];
        month += 1;
    }
    Moment {
        year,
        month,
        day: days + 1,
        weekday,
        day_of_year,
        hour: seconds / 3600 % 24,
        minute: seconds / 60 % 60,
        second: seconds % 60,
        micros: since_epoch.subsec_micros(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(seconds: u64, format: &str, expected: &str) {
        let now = UNIX_EPOCH + Duration::from_secs(seconds);
        assert_eq!(strftime(now, format).unwrap(), expected);
    }

    #[test]
    fn dates_agree_with_the_calendar() {
        check(0, "%Y-%m-%d %A %j", "1970-01-01 Thursday 001");
        check(951_782_400, "%d %b %Y, %a", "29 Feb 2000, Tue");
        check(1_735_689_599, "%B %-d, %Y %I:%M:%S %p", "December 31, 2024 11:59:59 PM");
        check(1_785_542_400, "%F %T", "2026-08-01 00:00:00");
        check(4_102_444_800, "%Y", "2100");
    }

    #[test]
    fn unknown_directives_are_refused() {
        assert!(strftime(UNIX_EPOCH, "%Q").is_err());
        assert!(strftime(UNIX_EPOCH, "%").is_err());
    }
}
