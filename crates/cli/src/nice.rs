//! Numbers, durations and dates as OpenZFS prints them (`lib/libzutil/zutil_nicenum.c`, `secs_to_dhms`).

use chrono::{Local, TimeZone};

const UNITS: [&str; 7] = ["", "K", "M", "G", "T", "P", "E"];

fn scaled(number: u64, unit_of_ones: &str) -> String {
    let mut index = 0;
    let mut whole = number;
    while whole >= 1024 && index < UNITS.len() - 1 {
        whole /= 1024;
        index += 1;
    }
    let unit = if index == 0 { unit_of_ones } else { UNITS[index] };
    let base = 1_u64 << (10 * index);
    if number.is_multiple_of(base) {
        return format!("{whole}{unit}");
    }
    // As many digits as fit into five characters: "1.50T", "24.5K", "1012M".
    let value = number as f64 / base as f64;
    (0..=2)
        .rev()
        .map(|digits| format!("{value:.digits$}{unit}"))
        .find(|text| text.len() <= 5)
        .unwrap_or_else(|| format!("{value:.0}{unit}"))
}

/// A count: "0", "1012", "1.50K".
pub fn num(number: u64) -> String {
    scaled(number, "")
}

/// A number of bytes: "0B", "512B", "24.5K".
pub fn bytes(number: u64) -> String {
    scaled(number, "B")
}

/// A ratio given in hundredths: "1.00x".
pub fn ratio(hundredths: u64) -> String {
    format!("{}.{:02}x", hundredths / 100, hundredths % 100)
}

/// Nanoseconds: "123ns", "5us", "12ms"; "-" for none. Cut off, never rounded up.
pub fn time(nanoseconds: u64) -> String {
    const UNITS: [&str; 4] = ["ns", "us", "ms", "s"];
    let (mut whole, mut index) = (nanoseconds, 0);
    while whole >= 1000 && index < UNITS.len() - 1 {
        whole /= 1000;
        index += 1;
    }
    if nanoseconds == 0 { "-".to_owned() } else { format!("{whole}{}", UNITS[index]) }
}

/// A duration: "00:12:07", "2 days 03:04:05".
pub fn duration(seconds: u64) -> String {
    let (days, hours, minutes, seconds) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    if days == 0 {
        format!("{hours:02}:{minutes:02}:{seconds:02}")
    } else {
        format!("{days} days {hours:02}:{minutes:02}:{seconds:02}")
    }
}

fn local(seconds: u64, format: &str) -> String {
    i64::try_from(seconds)
        .ok()
        .and_then(|seconds| Local.timestamp_opt(seconds, 0).single())
        .map_or_else(|| seconds.to_string(), |time| time.format(format).to_string())
}

/// `ctime`: "Sat Nov 21 00:44:06 2026".
pub fn ctime(seconds: u64) -> String {
    local(seconds, "%a %b %e %H:%M:%S %Y")
}

/// `creation`: "Sat Nov 21  0:44 2026".
pub fn creation(seconds: u64) -> String {
    local(seconds, "%a %b %e %k:%M %Y")
}

/// `zfs holds`: "Sat Nov 21 00:44 2026".
pub fn held(seconds: u64) -> String {
    local(seconds, "%a %b %e %H:%M %Y")
}

/// `snapshots_changed`: "Sat Nov 21  0:44:06 2026".
pub fn creation_with_seconds(seconds: u64) -> String {
    local(seconds, "%a %b %e %k:%M:%S %Y")
}

/// `zpool history`: "2026-11-21.00:44:06".
pub fn history(seconds: u64) -> String {
    local(seconds, "%Y-%m-%d.%H:%M:%S")
}

/// `zpool events`, without the fraction: "Nov 21 2026 00:44:06".
pub fn event(seconds: u64) -> String {
    local(seconds, "%b %e %Y %H:%M:%S")
}

/// `date(1)`, as `-T d` and timestamps in JSON have it: "Sat Nov 21 00:44:06 UTC 2026"; "-" for none.
pub fn date(seconds: u64) -> String {
    if seconds == 0 {
        return "-".to_owned();
    }
    let zone = match local(seconds, "%z").as_str() {
        "+0000" => "UTC".to_owned(),
        other => other.to_owned(),
    };
    format!("{} {zone} {}", local(seconds, "%a %b %e %H:%M:%S"), local(seconds, "%Y"))
}

/// Seconds since the epoch, now.
pub fn now() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_openzfs() {
        let table: [(u64, &str); 20] = [
            (0, "0"),
            (1, "1"),
            (999, "999"),
            (1023, "1023"),
            (1024, "1K"),
            (1025, "1.00K"),
            (1536, "1.50K"),
            (10_239, "10.0K"),
            (25_088, "24.5K"),
            (98_304, "96K"),
            (131_072, "128K"),
            (1_048_575, "1024K"),
            (1_036_288, "1012K"),
            (603_979_776, "576M"),
            (151_584_768, "145M"),
            (452_395_008, "431M"),
            (1_649_267_441_664, "1.50T"),
            (1_649_267_441_665, "1.50T"),
            (u64::MAX, "16.0E"),
            (1 << 60, "1E"),
        ];
        for (number, text) in table {
            assert_eq!(num(number), text, "{number}");
        }
    }

    #[test]
    fn bytes_below_a_kibibyte_have_their_unit() {
        assert_eq!(bytes(0), "0B");
        assert_eq!(bytes(512), "512B");
        assert_eq!(bytes(24 << 10), "24K");
    }

    #[test]
    fn latencies_have_no_fractions_and_zero_is_none() {
        let table = [(0, "-"), (999, "999ns"), (1999, "1us"), (12_345_678, "12ms"), (68_719_476_735, "68s")];
        for (nanoseconds, text) in table {
            assert_eq!(time(nanoseconds), text);
        }
    }

    #[test]
    fn durations_and_ratios() {
        assert_eq!(duration(0), "00:00:00");
        assert_eq!(duration(727), "00:12:07");
        assert_eq!(duration(2 * 86_400 + 3 * 3600 + 4 * 60 + 5), "2 days 03:04:05");
        assert_eq!(ratio(100), "1.00x");
        assert_eq!(ratio(376), "3.76x");
    }

    #[test]
    fn days_of_the_month_are_padded_with_a_blank() {
        // Holds in every time zone: the 5th or its neighbours have one digit.
        let text = ctime(1_762_344_000);
        assert_eq!(text.len(), "Wed Nov  5 12:00:00 2025".len(), "{text}");
        assert!(text.contains("Nov  "), "{text}");
    }

    proptest::proptest! {
        #[test]
        fn five_characters_are_enough_for_every_number(number: u64) {
            proptest::prop_assert!(num(number).len() <= 5, "{}", num(number));
        }
    }
}
