//! The operations of the API: everything that a client can ask of a daemon, and what is answered.
//!
//! A request is a `POST` to [`PATH`] with an [`Operation`] as JSON: an object whose only name says which operation it
//! is, and whose value says of what: `{"export_pool": {…}}`, `{"look": {"list_pools": {}}}`. The answer is that
//! operation's [`Ask::Answer`], or an [`ErrorBody`].
//!
//! Two rules, which the tests below hold:
//! - what is not known is refused as a whole, a field of a known operation too: an older daemon never does half of what
//!   a newer client asks for;
//! - a [`Look`] changes nothing, and everybody on the machine may ask for it.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::delegation::{Allow, GetPermissions, Permissions, Unallow};
use crate::disks::{DiskReport, ListDisks};
use crate::event::Event;
use crate::faults::{GetFaults, HoldDevice, PoolFaults};
use crate::job::{ControlJob, Job, ListJobs};
use crate::messages::{
    CheckPlaces, ClearEvents, ClearLabel, ClosePool, CreateDataset, CreatePool, CreatedDataset, CreatedPool,
    DaemonStatus, Datasets, DestroyDataset, DestroyedDatasets, ErrorBody, ErrorKind, GetEvents, GetHistory, GetPool,
    GetStatus, GetTxgs, GetUserspace, ImportPool, ImportedPool, ListDatasets, ListMounts, ListPools, LogLevel,
    MountEntry, MountOutcome, MountRequest, OperatePool, Outcome, PoolNames, PoolView, RenameDataset, SearchPools,
    SetDatasetProperties, SetIdQuota, SetLogLevel, StopDaemon, UnmountRequest, Userspace,
};
use crate::notify::{AddReceiver, ListReceivers, ReceiverReport, RemoveReceiver, TestReceivers};
use crate::report::{FoundPools, HistoryEntry};
use crate::request::Changed;
use crate::schedules::{ListSchedules, ScheduleReport};
use crate::snapshots::{
    CloneSnapshot, DeleteQueue, DestroySnapshots, DestroyedSnapshots, DiffSnapshots, GetDeleteQueue, GetHolds,
    GetWritten, HoldSnapshot, Holds, PromoteDataset, RenameSnapshot, RollbackDataset, TakeSnapshots, Written,
};
use crate::splits::{SplitAnswer, SplitPool};
use crate::streams::{
    AbortReceive, CreateBookmark, DestroyBookmark, ReceiveStream, ReceivedStream, Redact, SendStream, SentStream,
};
use crate::txgs::TxgsReport;

/// Where operations are asked for; its number is the version of the API.
pub const PATH: &str = "/v2";

/// What can be asked of a daemon, with what it answers.
pub trait Ask {
    /// What is answered.
    type Answer: Serialize + DeserializeOwned + Send;

    /// As an operation.
    fn operation(self) -> Operation;
}

/// Makes an enum of operations, each with its name in JSON and its answer; those of another enum may be among them.
macro_rules! operations {
    ($(#[$about:meta])* $enum:ident $([$inner_name:literal $inner:ident])? {
        $($name:literal $ask:ident -> $answer:ty,)*
    }) => {
        $(#[$about])*
        #[derive(Clone, Debug, Serialize, Deserialize)]
        pub enum $enum {
            $(
                #[doc = concat!("[`", stringify!($inner), "`].")]
                #[serde(rename = $inner_name)]
                $inner($inner),
            )?
            $(
                #[doc = concat!("[`", stringify!($ask), "`].")]
                #[serde(rename = $name)]
                $ask($ask),
            )*
        }

        impl $enum {
            /// Their names in JSON.
            pub const NAMES: &[&str] = &[$($inner_name,)? $($name),*];
        }

        $(
            impl Ask for $ask {
                type Answer = $answer;

                fn operation(self) -> Operation {
                    Operation::from($enum::$ask(self))
                }
            }
        )*
    };
}

operations! {
    /// What changes nothing, and everybody may ask for, as every user may run `zpool list` in OpenZFS.
    Look {
        "get_status" GetStatus -> DaemonStatus,
        "list_pools" ListPools -> PoolNames,
        "get_pool" GetPool -> PoolView,
        "get_txgs" GetTxgs -> TxgsReport,
        "list_datasets" ListDatasets -> Datasets,
        "list_mounts" ListMounts -> Vec<MountEntry>,
        "get_holds" GetHolds -> Holds,
        "get_delete_queue" GetDeleteQueue -> DeleteQueue,
        "get_written" GetWritten -> Written,
        "list_jobs" ListJobs -> Vec<Job>,
        "get_faults" GetFaults -> Vec<PoolFaults>,
        "get_permissions" GetPermissions -> Permissions,
    }
}

operations! {
    /// Everything that can be asked for. But for a look it is the daemon's owner's to ask, and of a data set's what it
    /// allows to others.
    Operation ["look" Look] {
        "stop_daemon" StopDaemon -> Outcome,
        "set_log_level" SetLogLevel -> LogLevel,
        "get_events" GetEvents -> Vec<Event>,
        "clear_events" ClearEvents -> usize,
        "create_pool" CreatePool -> CreatedPool,
        "import_pool" ImportPool -> ImportedPool,
        "search_pools" SearchPools -> FoundPools,
        "close_pool" ClosePool -> Outcome,
        "operate_pool" OperatePool -> Changed,
        "split_pool" SplitPool -> SplitAnswer,
        "control_job" ControlJob -> Outcome,
        "get_history" GetHistory -> Vec<HistoryEntry>,
        "clear_label" ClearLabel -> Outcome,
        "check_places" CheckPlaces -> Outcome,
        "create_dataset" CreateDataset -> CreatedDataset,
        "destroy_dataset" DestroyDataset -> DestroyedDatasets,
        "rename_dataset" RenameDataset -> Outcome,
        "take_snapshots" TakeSnapshots -> Outcome,
        "destroy_snapshots" DestroySnapshots -> DestroyedSnapshots,
        "rename_snapshot" RenameSnapshot -> Outcome,
        "hold_snapshot" HoldSnapshot -> Outcome,
        "rollback_dataset" RollbackDataset -> Outcome,
        "clone_snapshot" CloneSnapshot -> Outcome,
        "promote_dataset" PromoteDataset -> Outcome,
        "diff_snapshots" DiffSnapshots -> Outcome,
        "send_stream" SendStream -> SentStream,
        "receive_stream" ReceiveStream -> ReceivedStream,
        "abort_receive" AbortReceive -> Outcome,
        "create_bookmark" CreateBookmark -> Outcome,
        "destroy_bookmark" DestroyBookmark -> Outcome,
        "redact" Redact -> Outcome,
        "set_dataset_properties" SetDatasetProperties -> Outcome,
        "allow" Allow -> Outcome,
        "unallow" Unallow -> Outcome,
        "get_userspace" GetUserspace -> Userspace,
        "set_id_quota" SetIdQuota -> Outcome,
        "mount" MountRequest -> MountOutcome,
        "unmount" UnmountRequest -> Outcome,
        "hold_device" HoldDevice -> Outcome,
        "add_receiver" AddReceiver -> ReceiverReport,
        "list_receivers" ListReceivers -> Vec<ReceiverReport>,
        "remove_receiver" RemoveReceiver -> Outcome,
        "list_disks" ListDisks -> Vec<DiskReport>,
        "list_schedules" ListSchedules -> Vec<ScheduleReport>,
        "test_receivers" TestReceivers -> Outcome,
    }
}

impl From<Look> for Operation {
    fn from(look: Look) -> Self {
        Self::Look(look)
    }
}

impl Operation {
    /// Whether it is about the daemon itself, also while that ends, and not for the next one.
    pub fn is_about_daemon(&self) -> bool {
        matches!(self, Self::Look(Look::GetStatus(_)) | Self::StopDaemon(_) | Self::SetLogLevel(_))
    }

    /// Whether it is done with a descriptor that one daemon was handed, and that the next one does not have.
    pub fn needs_descriptor(&self) -> bool {
        match self {
            Self::DiffSnapshots(_) | Self::ReceiveStream(_) => true,
            Self::SendStream(call) => call.descriptor.is_some(),
            _ => false,
        }
    }

    /// Whether it changes nothing and waits for nothing, so that somebody may ask for it again and again.
    pub fn only_looks(&self) -> bool {
        matches!(self, Self::Look(_) | Self::GetEvents(_) | Self::GetHistory(_))
    }

    /// As JSON.
    ///
    /// # Errors
    /// None at present: all that is asked for can be worded.
    pub fn to_json(&self) -> Result<Vec<u8>, ErrorBody> {
        serde_json::to_vec(self).map_err(|error| ErrorBody::new(format!("cannot word the request: {error}")))
    }

    /// An operation from JSON.
    ///
    /// # Errors
    /// That it is none, or one of another version.
    pub fn parse(bytes: &[u8]) -> Result<Self, ErrorBody> {
        let refuse = |kind: ErrorKind, text: String| Err(ErrorBody::of_kind(kind, text));
        let value: Value = match serde_json::from_slice(bytes) {
            Ok(value) => value,
            Err(error) => return refuse(ErrorKind::Malformed, format!("the request is no JSON: {error}")),
        };
        let only = |value: &Value| match value.as_object().map(|object| object.iter().collect::<Vec<_>>()) {
            Some(members) if members.len() == 1 => Some((members[0].0.clone(), members[0].1.clone())),
            _ => None,
        };
        let Some((name, inner)) = only(&value) else {
            return refuse(ErrorKind::Malformed, "the request is no object with one operation".to_owned());
        };
        let unknown = match (&*name, only(&inner)) {
            (name, _) if !Self::NAMES.contains(&name) => Some(name.to_owned()),
            ("look", Some((look, _))) if !Look::NAMES.contains(&&*look) => Some(format!("look/{look}")),
            _ => None,
        };
        if let Some(unknown) = unknown {
            let text = format!("this daemon (version {}) does not know the operation '{unknown}'", crate::VERSION);
            return Err(ErrorBody::of_kind(ErrorKind::UnknownOperation, text).hint(OTHER_VERSION));
        }
        serde_json::from_value(value).or_else(|error| {
            refuse(ErrorKind::Malformed, format!("the operation '{name}' makes no sense to this daemon: {error}"))
        })
    }
}

/// What to do when client and daemon are of different versions.
pub const OTHER_VERSION: &str =
    "the daemon may be of another version: 'platter daemon stop' lets the next command start this one";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_travel_unharmed() {
        let name = "tank/ü b%2F\"\n".to_owned();
        let bytes =
            ListDatasets { under: Some(name.clone()), ..ListDatasets::default() }.operation().to_json().unwrap();
        let Operation::Look(Look::ListDatasets(found)) = Operation::parse(&bytes).unwrap() else { panic!() };
        assert_eq!(found.under, Some(name));
        assert_eq!(ListPools {}.operation().to_json().unwrap(), br#"{"look":{"list_pools":{}}}"#);
    }

    #[test]
    fn what_is_not_known_is_refused_as_a_whole() {
        let table = [
            ("{\"fly_pool\":{}}", ErrorKind::UnknownOperation, "does not know the operation 'fly_pool'"),
            ("{\"look\":{\"fly\":{}}}", ErrorKind::UnknownOperation, "does not know the operation 'look/fly'"),
            ("{\"close_pool\":{\"pool\":\"tank\",\"slowly\":true}}", ErrorKind::Malformed, "unknown field `slowly`"),
            ("{\"operate_pool\":{\"pool\":\"tank\",\"operation\":\"fly\"}}", ErrorKind::Malformed, "unknown variant"),
            ("{\"create_pool\":{},\"look\":{}}", ErrorKind::Malformed, "no object with one operation"),
            ("[]", ErrorKind::Malformed, "no object with one operation"),
            ("POST", ErrorKind::Malformed, "no JSON"),
        ];
        for (text, kind, said) in table {
            let error = Operation::parse(text.as_bytes()).unwrap_err();
            assert!(error.kind == kind && error.message.contains(said), "{text}: {error:?}");
        }
    }

    #[test]
    fn only_what_is_about_the_daemon_is_not_for_the_next_one() {
        assert!(GetStatus {}.operation().is_about_daemon() && StopDaemon {}.operation().is_about_daemon());
        assert!(!ListPools {}.operation().is_about_daemon());
    }
}
