//! Numbers and words as people write them in properties (`zfs_nicestrtonum`, `lib/libzfs/libzfs_util.c`; the lists of
//! `module/zcommon/zfs_prop.c`).

/// Parses a number such as `128K`, `1.5M`, `4096`, `1GiB`.
///
/// # Errors
/// In OpenZFS's words, what is wrong with it.
pub fn parse(text: &str) -> Result<u64, String> {
    if !text.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return Err(format!("bad numeric value '{text}'"));
    }
    let too_large = || "numeric value is too large".to_owned();
    let whole = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    if !text[whole..].starts_with('.') {
        let number: u64 = text[..whole].parse().map_err(|_| too_large())?;
        let shift = shift(&text[whole..])?;
        return number.checked_mul(1u64.checked_shl(shift).ok_or_else(too_large)?).ok_or_else(too_large);
    }
    let fraction = &text[whole + 1..];
    let end = whole + 1 + fraction.find(|c: char| !c.is_ascii_digit()).unwrap_or(fraction.len());
    let number: f64 = text[..end].parse().map_err(|_| format!("bad numeric value '{text}'"))?;
    let value = number * 2f64.powi(shift(&text[end..])? as i32);
    if value >= u64::MAX as f64 { Err(too_large()) } else { Ok(value as u64) }
}

/// What a unit multiplies with, as a power of two: `G`, `GB` and `GiB` are the same.
fn shift(unit: &str) -> Result<u32, String> {
    let Some(first) = unit.chars().next() else { return Ok(0) };
    let rest = unit[first.len_utf8()..].to_ascii_lowercase();
    let first = first.to_ascii_uppercase();
    match "BKMGTPEZ".find(first) {
        Some(at) if rest.is_empty() || (first != 'B' && (rest == "b" || rest == "ib")) => Ok(10 * at as u32),
        _ => Err(format!("invalid numeric suffix '{unit}'")),
    }
}

/// The words that an enumerated property takes, as OpenZFS lists them.
pub fn choices(property: &str, values: &[(&str, u64)]) -> String {
    match property {
        "compression" => "on | off | lzjb | gzip | gzip-[1-9] | zle | lz4 | zstd | zstd-[1-19] | zstd-fast | \
                          zstd-fast-[1-10,20,30,40,50,60,70,80,90,100,500,1000]"
            .to_owned(),
        "checksum" => "on | off | fletcher2 | fletcher4 | sha256 | sha512 | skein | edonr | blake3".to_owned(),
        "canmount" => "on | off | noauto".to_owned(),
        "xattr" => "on | off | dir | sa".to_owned(),
        "acltype" => "off | nfsv4 | posix".to_owned(),
        "aclinherit" => "discard | noallow | restricted | passthrough | passthrough-x".to_owned(),
        "snapdir" => "disabled | hidden | visible".to_owned(),
        "primarycache" | "secondarycache" => "all | none | metadata".to_owned(),
        "version" => "1 | 2 | 3 | 4 | 5 | current".to_owned(),
        "normalization" => "none | formC | formD | formKC | formKD".to_owned(),
        "dedup" => "on | off | verify | sha256[,verify] | sha512[,verify] | skein[,verify] | edonr,verify | \
                    blake3[,verify]"
            .to_owned(),
        "encryption" => {
            "on | off | aes-128-ccm | aes-192-ccm | aes-256-ccm | aes-128-gcm | aes-192-gcm | aes-256-gcm".to_owned()
        }
        _ if values == [("off", 0), ("on", 1)] => "on | off".to_owned(),
        _ => values.iter().map(|(text, _)| *text).collect::<Vec<_>>().join(" | "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_units_and_fractions() {
        let table = [
            ("0", 0),
            ("512", 512),
            ("128K", 131_072),
            ("128kb", 131_072),
            ("1GiB", 1 << 30),
            ("7B", 7),
            ("1.5M", 1_572_864),
            (".5K", 512),
            ("2.g", 2 << 30),
            ("18446744073709551615", u64::MAX),
            ("15E", 15 << 60),
        ];
        for (text, number) in table {
            assert_eq!(parse(text), Ok(number), "{text}");
        }
    }

    #[test]
    fn what_is_no_number_is_named_as_openzfs_names_it() {
        let table = [
            ("", "bad numeric value ''"),
            ("-1", "bad numeric value '-1'"),
            (" 1", "bad numeric value ' 1'"),
            (".", "bad numeric value '.'"),
            ("10X", "invalid numeric suffix 'X'"),
            ("10BB", "invalid numeric suffix 'BB'"),
            ("1BiB", "invalid numeric suffix 'BiB'"),
            ("1 K", "invalid numeric suffix ' K'"),
            ("1é", "invalid numeric suffix 'é'"),
            ("16E", "numeric value is too large"),
            ("1Z", "numeric value is too large"),
            ("18446744073709551616", "numeric value is too large"),
            ("99999999999.5E", "numeric value is too large"),
        ];
        for (text, reason) in table {
            assert_eq!(parse(text).unwrap_err(), reason);
        }
    }
}
