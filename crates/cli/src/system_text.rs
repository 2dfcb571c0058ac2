//! What the system says of an error.

use std::io;

/// As strerror(3) says it: without Rust's "(os error 2)".
pub fn system_text(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}
