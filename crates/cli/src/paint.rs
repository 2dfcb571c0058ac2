//! Colours, on a terminal only (`NO_COLOR` and `ZFS_COLOR=0` turn them off).

use std::io::IsTerminal;
use std::sync::OnceLock;

/// A colour or weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paint {
    /// As it is.
    Plain,
    /// Bold.
    Bold,
    /// Red.
    Red,
    /// Yellow.
    Yellow,
}

fn enabled() -> bool {
    static ENABLED: OnceLock<bool> = OnceLock::new();
    *ENABLED.get_or_init(|| {
        std::io::stdout().is_terminal()
            && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
            && std::env::var_os("ZFS_COLOR").is_none_or(|value| value != "0")
            && std::env::var_os("TERM").is_some_and(|value| value != "dumb")
    })
}

/// The text in that colour.
pub fn paint(paint: Paint, text: &str) -> String {
    let code = match paint {
        Paint::Plain => return text.to_owned(),
        _ if !enabled() => return text.to_owned(),
        Paint::Bold => "1",
        Paint::Red => "31",
        Paint::Yellow => "33",
    };
    format!("\x1b[{code}m{text}\x1b[0m")
}

/// The colour of a health state.
pub fn health(state: &str) -> Paint {
    match state {
        "FAULTED" | "SUSPENDED" | "UNAVAIL" => Paint::Red,
        "OFFLINE" | "DEGRADED" | "REMOVED" => Paint::Yellow,
        _ => Paint::Plain,
    }
}
