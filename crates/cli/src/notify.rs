//! `platter notify`: who is told when a device fails.

use std::path::PathBuf;

use platter_api::notify::{AddReceiver, ListReceivers, ReceiverReport, RemoveReceiver, TestReceivers, Way};

use crate::json;
use crate::nice;
use crate::out::{out, outln};
use crate::session::{Done, Session, complain_all, exit_code};

/// What the kinds of receivers get, for `--help`.
const HELP: &str = "\
program  PATH  is run with the message as JSON on its standard input, PLATTER_CLASS and PLATTER_POOL in its environment
webhook  URL   gets the message as JSON, by POST
mail     ADDR  gets a mail, through sendmail
ntfy     URL   of a topic, such as https://ntfy.sh/my-disks";

/// Words of the command.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
}

/// What is to be done.
#[derive(Clone, Debug, clap::Subcommand)]
enum Action {
    /// Add a receiver
    #[command(after_help = HELP)]
    Add {
        /// How it is reached
        kind: Kind,
        /// Where it is
        target: String,
    },
    /// List receivers, and how it goes with them
    List {
        /// As JSON
        #[arg(short = 'j', long)]
        json: bool,
    },
    /// Remove a receiver
    Remove {
        /// Its number in the list
        id: u64,
    },
    /// Send a message to see whether it arrives
    Test {
        /// Only to the receiver of this number
        id: Option<u64>,
    },
}

/// How a receiver is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Kind {
    Program,
    Webhook,
    Mail,
    Ntfy,
}

/// Runs it; the exit code.
pub fn main(arguments: &Arguments) -> u8 {
    exit_code(run(&arguments.action), "notify")
}

fn run(action: &Action) -> Done {
    let mut session = Session::new("platter notify".to_owned())?;
    match action {
        Action::Add { kind, target } => {
            let way = match kind {
                Kind::Program => Way::Program(PathBuf::from(target)),
                Kind::Webhook => Way::Webhook(target.clone()),
                Kind::Mail => Way::Mail(target.clone()),
                Kind::Ntfy => Way::Ntfy(target.clone()),
            };
            let added = session.ask(AddReceiver { way })?;
            outln!("added receiver {}; 'platter notify test {}' sends it a message", added.id, added.id);
        }
        Action::List { json: as_json } => {
            let receivers = session.ask(ListReceivers {})?;
            if *as_json {
                let mut document = json::schema("platter notify list");
                document.insert("receivers".into(), serde_json::to_value(&receivers).unwrap_or_default());
                json::print(document);
            } else {
                out!("{}", text(&receivers));
            }
        }
        Action::Remove { id } => _ = session.ask(RemoveReceiver { id: *id })?,
        Action::Test { id } => return Ok(complain_all(&session.ask(TestReceivers { id: *id })?.problems)),
    }
    Ok(0)
}

fn text(receivers: &[ReceiverReport]) -> String {
    if receivers.is_empty() {
        return "nobody is told: 'platter notify add' names who is\n".to_owned();
    }
    let mut text = format!("{:>3}  {:<7}  {:>5}  {:>5}  {:>5}  WHERE\n", "ID", "KIND", "SENT", "LOST", "WAIT");
    for ReceiverReport { id, way, delivered, lost, waiting, last_delivered, trouble } in receivers {
        let (kind, target) = (way.name(), way.target());
        text.push_str(&format!("{id:>3}  {kind:<7}  {delivered:>5}  {lost:>5}  {waiting:>5}  {target}\n"));
        if let Some(trouble) = trouble {
            let since = last_delivered.map(|time| format!(" (last told {})", nice::ctime(time))).unwrap_or_default();
            text.push_str(&format!("     trouble: {trouble}{since}\n"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receiver_in_trouble_is_shown() {
        let receiver = ReceiverReport {
            id: 3,
            way: Way::Mail("root".into()),
            delivered: 2,
            lost: 1,
            waiting: 4,
            last_delivered: None,
            trouble: Some("there is no sendmail on this machine".into()),
        };
        let expected = " ID  KIND      SENT   LOST   WAIT  WHERE\n  3  mail         2      1      4  root\n     \
                        trouble: there is no sendmail on this machine\n";
        assert_eq!(text(&[receiver]), expected);
    }
}
