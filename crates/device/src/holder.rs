//! Who keeps a device, or a pool, for itself.

use std::fmt;

/// A process that holds what only one may hold. `Display` is what a person calls it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holder {
    /// This very process.
    ThisProcess,
    /// Another one.
    Process {
        /// Its number.
        pid: i32,
        /// Its name.
        name: String,
    },
    /// Another one whose number cannot be told; what there is to say of it behind "another process".
    Unnamed(&'static str),
}

impl Holder {
    /// Somebody of whom nothing is known.
    pub const SOMEBODY: Self = Self::Unnamed("");

    /// The process of this number.
    pub fn of(pid: i32) -> Self {
        if pid == std::process::id() as i32 {
            return Self::ThisProcess;
        }
        Self::Process { pid, name: name_of(pid) }
    }
}

/// What a process calls itself.
pub fn name_of(pid: i32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_else(|_| "unknown".into());
    name.trim().to_owned()
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ThisProcess => f.write_str("this daemon"),
            Self::Process { pid, name } => write!(f, "another process ({name}, pid {pid})"),
            Self::Unnamed(what) => write!(f, "another process{what}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_not_another_one() {
        let own = std::process::id() as i32;
        assert_eq!(Holder::of(own), Holder::ThisProcess);
        assert_eq!(Holder::ThisProcess.to_string(), "this daemon");
        assert_eq!(Holder::of(1).to_string(), format!("another process ({}, pid 1)", name_of(1)));
        assert_eq!(Holder::SOMEBODY.to_string(), "another process");
    }
}
