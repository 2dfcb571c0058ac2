//! What every command works with: the connection to the daemon (made at first need), the command line for the
//! history, and the ways a command can end.

use std::collections::BTreeSet;
use std::path::PathBuf;

use platter_api::ask::Ask;
use platter_api::messages::{ErrorBody, OperatePool};
use platter_api::request::{Changed, PoolOperation};
use platter_daemon::client::Client;
use platter_daemon::guest_pipe::Way;
use platter_daemon::home::Home;

/// How a command fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The command line makes no sense: a message (if any), then the command's usage; exit code 2.
    Usage(String),
    /// It was refused or went wrong.
    Refused(ErrorBody),
}

impl From<ErrorBody> for Failure {
    fn from(body: ErrorBody) -> Self {
        Self::Refused(body)
    }
}

/// A complete message, exit code 1.
pub fn refused(message: impl Into<String>) -> Failure {
    Failure::Refused(ErrorBody::new(message))
}

/// A message before the usage, exit code 2.
pub fn usage(message: impl Into<String>) -> Failure {
    Failure::Usage(message.into())
}

/// A command's exit code, or how it failed.
pub type Done = Result<u8, Failure>;

/// The exit code of a command of `platter`'s own, after what there is to say of its failure.
pub fn exit_code(done: Done, command: &str) -> u8 {
    match done {
        Ok(code) => code,
        Err(Failure::Usage(message)) => {
            eprintln!("{message}\nTry 'platter {command} --help'.");
            2
        }
        Err(Failure::Refused(body)) => {
            complain(&body);
            body.exit_code()
        }
    }
}

/// A running command.
pub struct Session {
    runtime: tokio::runtime::Runtime,
    client: Option<Client>,
    /// Pools in whose history the command is.
    noted: BTreeSet<String>,
    /// "zpool create tank …", for the pool's history.
    pub command_line: String,
}

impl Session {
    /// A session for this command line.
    ///
    /// # Errors
    /// When no thread or timer can be had.
    pub fn new(command_line: String) -> Result<Self, ErrorBody> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| ErrorBody::new(format!("cannot start: {error}")))?;
        Ok(Self { runtime, client: None, noted: BTreeSet::new(), command_line })
    }

    fn client(&mut self) -> Result<Client, ErrorBody> {
        if let Some(client) = &self.client {
            return Ok(client.clone());
        }
        let client = Client::new(Home::of_commands()?);
        if let Some(pid) = self.runtime.block_on(client.ensure_running())? {
            eprintln!("platter: started the daemon (pid {pid})");
        }
        self.client = Some(client.clone());
        Ok(client)
    }

    /// Asks the daemon.
    ///
    /// # Errors
    /// What it answers, or that it cannot be reached or started.
    pub fn ask<A: Ask>(&mut self, call: A) -> Result<A::Answer, ErrorBody> {
        let client = self.client()?;
        self.runtime.block_on(client.ask(call))
    }

    /// Asks the daemon for what may take a while; `None` when the person pressed Ctrl-C.
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub fn wait_for<A: Ask>(&mut self, call: A) -> Result<Option<A::Answer>, ErrorBody> {
        let client = self.client()?;
        self.runtime.block_on(async {
            tokio::select! {
                answer = client.ask(call) => answer.map(Some),
                _ = tokio::signal::ctrl_c() => Ok(None),
            }
        })
    }

    /// Asks the daemon for what it does with `descriptor`, which is handed over under the name that `call` is made
    /// with. `passed` hears now and then how many bytes have.
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub fn stream<A: Ask>(
        &mut self,
        descriptor: (std::os::fd::BorrowedFd<'_>, Way),
        call: impl FnOnce(String) -> A,
        passed: impl FnMut(u64),
    ) -> Result<A::Answer, ErrorBody> {
        let client = self.client()?;
        self.runtime.block_on(client.stream(descriptor, call, passed))
    }

    /// Does something to a pool. The command is noted in the pool's history once, however much of it is to do there.
    ///
    /// # Errors
    /// What the daemon answers, or that it cannot be reached or started.
    pub fn operate(&mut self, pool: &str, operation: PoolOperation) -> Result<Changed, ErrorBody> {
        let is_noted = self.noted.contains(pool);
        let command = if is_noted { String::new() } else { self.command_line.clone() };
        let changed = self.ask(OperatePool { pool: pool.to_owned(), operation, command })?;
        self.noted.insert(pool.to_owned());
        Ok(changed)
    }

    /// Refuses paths by which the daemon means other files than this command does.
    ///
    /// # Errors
    /// Such a path; the daemon cannot be reached or started.
    pub fn check_places(&mut self, paths: &[PathBuf]) -> Result<(), ErrorBody> {
        let client = self.client()?;
        self.runtime.block_on(client.check_places(paths))
    }

    /// Sleeps; `false` when the person pressed Ctrl-C.
    pub fn sleep(&self, time: std::time::Duration) -> bool {
        self.runtime.block_on(async {
            tokio::select! {
                () = tokio::time::sleep(time) => true,
                _ = tokio::signal::ctrl_c() => false,
            }
        })
    }
}

/// Prints a failure's message and hint.
pub fn complain(body: &ErrorBody) {
    eprintln!("{}", body.message);
    if let Some(hint) = &body.hint {
        eprintln!("{hint}");
    }
}

/// Prints problems that did not stop an operation; the exit code that they make.
pub fn complain_all(problems: &[String]) -> u8 {
    for problem in problems {
        eprintln!("{problem}");
    }
    u8::from(!problems.is_empty())
}
