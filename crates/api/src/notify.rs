//! Who is told when a device fails: `platter notify`.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::faults::DeviceState;

/// How a receiver is reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Way {
    /// A program is run: it gets the message as JSON on its standard input.
    Program(PathBuf),
    /// The message is posted as JSON.
    Webhook(String),
    /// `sendmail` is given a mail to this address.
    Mail(String),
    /// The message is posted to a topic of ntfy, given by its URL.
    Ntfy(String),
}

impl Way {
    /// The word by which it is chosen.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Program(_) => "program",
            Self::Webhook(_) => "webhook",
            Self::Mail(_) => "mail",
            Self::Ntfy(_) => "ntfy",
        }
    }

    /// Where it leads.
    pub fn target(&self) -> String {
        match self {
            Self::Program(path) => path.display().to_string(),
            Self::Webhook(target) | Self::Mail(target) | Self::Ntfy(target) => target.clone(),
        }
    }
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Class of the event: `fault.fs.zfs.vdev.io`, `resource.fs.zfs.statechange`…
    pub class: String,
    /// Seconds since the epoch.
    pub time: u64,
    /// The machine.
    pub host: String,
    /// The pool's name.
    pub pool: String,
    /// The device's path; none when it is about the pool as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// The device's guid, decimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guid: Option<String>,
    /// How far the device can be used now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<DeviceState>,
    /// What happened, for a person.
    pub text: String,
    /// What its owner should do now.
    pub action: String,
}

/// A receiver, and how it went so far.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiverReport {
    /// Its number.
    pub id: u64,
    /// How it is reached.
    pub way: Way,
    /// Messages that arrived since the daemon started.
    pub delivered: u64,
    /// Messages that were given up since the daemon started.
    pub lost: u64,
    /// Messages that wait.
    pub waiting: u64,
    /// When the last one arrived, seconds since the epoch.
    pub last_delivered: Option<u64>,
    /// What went wrong last, when nothing has arrived since.
    pub trouble: Option<String>,
}

/// Adds a receiver.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AddReceiver {
    /// How it is reached.
    pub way: Way,
}

/// Asks for all receivers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListReceivers {}

/// Removes a receiver.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemoveReceiver {
    /// Its number.
    pub id: u64,
}

/// Sends a message to see whether it arrives; the answer's problems say which did not.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TestReceivers {
    /// To this one only.
    pub id: Option<u64>,
}
