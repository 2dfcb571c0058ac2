//! `platter` itself: the daemon's life, and the way to `zpool` and `zfs`.

use std::time::Duration;

use clap::{Parser, Subcommand};
use platter_api::messages::{ErrorBody, GetStatus, SetLogLevel, StopDaemon};
use platter_daemon::client::Client;
use platter_daemon::home::Home;
use platter_daemon::run;
use serde_json::json;

use crate::nice;
use crate::out::outln;
use crate::session::complain;

/// How long `daemon stop` waits for everything to be written.
const STOP_LIMIT: Duration = Duration::from_secs(600);

#[derive(Parser)]
#[command(
    name = "platter",
    version,
    about = "ZFS in user space: storage pools in the OpenZFS format, without a kernel module"
)]
#[command(arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Manage storage pools, as OpenZFS's zpool(8)
    #[command(disable_help_flag = true)]
    Zpool {
        /// Words of the zpool command
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
    /// Manage file systems, as OpenZFS's zfs(8)
    #[command(disable_help_flag = true)]
    Zfs {
        /// Words of the zfs command
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
    /// Show what the latest transaction groups wrote and where their time went
    #[command(after_help = crate::txgs::HELP, override_usage = crate::txgs::USAGE)]
    Txgs(crate::txgs::Arguments),
    /// Show which devices have failed or seem to, what was done about it, and what to do now
    Faults(crate::faults::Arguments),
    /// List the disks of this machine: sectors, caches, temperatures, and in which pools they are
    Disks(crate::disks::Arguments),
    /// List which data sets get snapshots by themselves (property platter:snap), and how that goes
    Schedule(crate::schedule::Arguments),
    /// Bring a data set's snapshots to another pool or machine: all of them, then what is new
    Replicate(crate::replicate::Arguments),
    /// Read, write, export and import volumes
    Volume {
        #[command(subcommand)]
        action: crate::volume::Action,
    },
    /// Look into a stream of 'zfs send' that lies in a file, without receiving it
    Stream {
        #[command(subcommand)]
        action: crate::stream::Action,
    },
    /// Name who is told when a device fails
    Notify(crate::notify::Arguments),
    /// The daemon that owns imported pools and mounts; it starts by itself when a command needs it
    Daemon {
        #[command(subcommand)]
        action: Option<DaemonAction>,
    },
}

#[derive(Subcommand)]
enum DaemonAction {
    /// Start it (does nothing when it runs)
    Start {
        /// Stay in the foreground and log to the terminal
        #[arg(long)]
        foreground: bool,
        /// Leave the session of the command that starts it
        #[arg(long, hide = true)]
        detached: bool,
    },
    /// Unmount everything, write everything, close all pools and end; pools are opened again at the next start
    Stop,
    /// Tell whether it runs and what it has
    Status {
        /// As JSON
        #[arg(short = 'j', long)]
        json: bool,
    },
    /// Tell what it logs, or change that at once
    LogLevel {
        /// off, error, warn, info, debug or trace; of one part only: platter_spa=debug
        level: Option<String>,
    },
}

/// Runs it; the exit code.
pub fn main() -> u8 {
    let result = match Arguments::parse().command {
        Command::Zpool { words } => return crate::zpool::main(&words),
        Command::Zfs { words } => return crate::zfs::main(&words),
        Command::Txgs(arguments) => return crate::txgs::main(&arguments),
        Command::Disks(arguments) => return crate::disks::main(&arguments),
        Command::Replicate(arguments) => return crate::replicate::main(&arguments),
        Command::Schedule(arguments) => return crate::schedule::main(&arguments),
        Command::Faults(arguments) => return crate::faults::main(&arguments),
        Command::Volume { action } => return crate::volume::main(&action),
        Command::Stream { action } => return crate::stream::main(&action),
        Command::Notify(arguments) => return crate::notify::main(&arguments),
        Command::Daemon { action } => daemon(action.unwrap_or(DaemonAction::Status { json: false })),
    };
    match result {
        Ok(code) => code,
        Err(body) => {
            complain(&body);
            body.exit_code()
        }
    }
}

fn daemon(action: DaemonAction) -> Result<u8, ErrorBody> {
    let home = Home::from_environment()?;
    match action {
        DaemonAction::Start { foreground: true, detached } => {
            run::run(home, detached, platter_daemon::fuse_mounter::parts())?;
            Ok(0)
        }
        DaemonAction::Start { foreground: false, .. } => block_on(async {
            let client = Client::new(home);
            if let Some(owner) = client.home().other_owner() {
                return Err(not_ours(owner, "start"));
            }
            let started = client.ensure_running().await?;
            // It answers when its pools are open and mounted, or their devices do not answer.
            client.ask(GetStatus {}).await?;
            match started {
                Some(pid) => outln!("platter: started the daemon (pid {pid})"),
                None => outln!("platter: the daemon (pid {}) runs already", client.home().daemon_pid().unwrap_or(0)),
            }
            Ok(0)
        }),
        DaemonAction::Stop => block_on(stop(Client::new(home))),
        DaemonAction::LogLevel { level } => block_on(log_level(Client::new(home), level)),
        DaemonAction::Status { json } => block_on(status(Client::new(Home::of_commands()?), json)),
    }
}

fn block_on<T>(future: impl Future<Output = Result<T, ErrorBody>>) -> Result<T, ErrorBody> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| ErrorBody::new(format!("cannot start: {error}")))?
        .block_on(future)
}

/// The refusal of what is another user's to do.
fn not_ours(owner: u32, what: &str) -> ErrorBody {
    ErrorBody::new(format!("cannot {what} the daemon: permission denied"))
        .hint(format!("it is user {owner}'s; one of your own has its PLATTER_HOME in a folder of yours"))
}

async fn stop(client: Client) -> Result<u8, ErrorBody> {
    if let Some(owner) = client.home().other_owner() {
        return Err(not_ours(owner, "stop"));
    }
    let Some(pid) = client.home().daemon_pid() else {
        outln!("platter: no daemon runs in '{}'", client.home().path().display());
        return Ok(0);
    };
    let mut code = 0;
    match client.ask(StopDaemon {}).await {
        Ok(outcome) => {
            outcome.problems.iter().for_each(|problem| eprintln!("platter: {problem}"));
            // It ended, but not all of it in order.
            code = u8::from(!outcome.problems.is_empty());
        }
        // It may be on its way out already.
        Err(error) if client.home().daemon_pid().is_some() && client.is_running().await => return Err(error),
        Err(_) => {}
    }
    if !client.wait_until_stopped(pid, STOP_LIMIT).await {
        return Err(ErrorBody::new(format!("the daemon (pid {pid}) did not end within {} s", STOP_LIMIT.as_secs()))
            .hint(format!("its log is '{}'", client.home().log_file().display())));
    }
    outln!("platter: the daemon (pid {pid}) ended");
    Ok(code)
}

async fn log_level(client: Client, level: Option<String>) -> Result<u8, ErrorBody> {
    if let Some(owner) = client.home().other_owner() {
        return Err(not_ours(owner, "ask"));
    }
    if client.home().daemon_pid().is_none() {
        outln!("platter: no daemon runs in '{}'", client.home().path().display());
        return Ok(1);
    }
    outln!("{}", client.ask(SetLogLevel { level }).await?.level);
    Ok(0)
}

async fn status(client: Client, as_json: bool) -> Result<u8, ErrorBody> {
    // Another user's lock cannot be looked at; whether he has a daemon is told by its socket.
    let theirs = client.home().other_owner().is_some();
    if if theirs { !client.is_running().await } else { client.home().daemon_pid().is_none() } {
        if as_json {
            outln!("{}", json!({ "running": false, "home": client.home().path() }));
        } else {
            outln!("platter: no daemon runs in '{}'", client.home().path().display());
        }
        return Ok(1);
    }
    let status = client.ask(GetStatus {}).await?;
    if as_json {
        let mut value = serde_json::to_value(&status).unwrap_or_default();
        value["running"] = true.into();
        outln!("{value}");
        return Ok(0);
    }
    outln!("platter {} runs as process {} since {}", status.version, status.pid, nice::ctime(status.started));
    outln!("  home:   {}", status.home.display());
    outln!("  pools:  {}", if status.pools.is_empty() { "none".to_owned() } else { status.pools.join(", ") });
    outln!("  mounts: {}", status.mounts);
    outln!("  cache:  {} of {}", nice::bytes(status.cached), nice::bytes(status.cache_most));
    for (name, reason) in &status.unavailable {
        outln!("  pool '{name}' could not be opened: {}", reason.lines().next().unwrap_or_default());
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_grammar_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn words_of_zpool_pass_through_untouched() {
        let parsed = Arguments::try_parse_from(["platter", "zpool", "list", "-Hp", "--json-int", "--help"]).unwrap();
        match parsed.command {
            Command::Zpool { words } => assert_eq!(words, ["list", "-Hp", "--json-int", "--help"]),
            _ => panic!("not zpool"),
        }
    }
}
