//! Standard output. A reader that goes away (`zpool list | head -1`) ends the command quietly, as the signal SIGPIPE
//! would.

use std::io::Write;

/// Exit code of a program that SIGPIPE ended, as shells report it.
const SIGPIPE_CODE: i32 = 128 + 13;

/// Writes text at once.
pub fn write(text: std::fmt::Arguments<'_>) {
    write_bytes(text.to_string().as_bytes());
}

/// Writes bytes at once: names of files need not be text.
pub fn write_bytes(bytes: &[u8]) {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(SIGPIPE_CODE),
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "cannot write: {error}");
            std::process::exit(1);
        }
    }
}

/// `print!` that survives a closed pipe.
macro_rules! out {
    ($($argument:tt)*) => { $crate::out::write(format_args!($($argument)*)) };
}

/// `println!` that survives a closed pipe.
macro_rules! outln {
    ($($argument:tt)*) => { $crate::out::write(format_args!("{}\n", format_args!($($argument)*))) };
}

pub(crate) use {out, outln};
