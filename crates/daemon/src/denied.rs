//! What another user than a daemon's owner may not do, in OpenZFS's words.
//!
//! True here: whoever asks for what is never anybody else's is told so before anything is asked. The daemon asks
//! `secpolicy` of everything all the same, so nothing hangs on this text.

use platter_api::ask::Operation;
use platter_api::messages::{Closing, ErrorBody, ErrorKind};
use platter_api::request::PoolOperation;

use crate::secpolicy::{Policy, policy};

/// The refusal of an operation.
pub fn refusal(operation: &Operation) -> ErrorBody {
    let what = attempt(operation).map_or_else(String::new, |attempt| format!("{attempt}: "));
    ErrorBody::of_kind(ErrorKind::Denied, format!("{what}permission denied"))
}

/// The refusal of what another user than `owner` asks for; none when he may, or the data set says whether he may.
pub fn before_asking(operation: &Operation, owner: u32) -> Option<ErrorBody> {
    // What is delegated hangs on the number of no user, but for what can be taken away from him.
    if policy(operation, rustix::process::geteuid().as_raw()) != Policy::Owner {
        return None;
    }
    let who = if owner == 0 { "root".to_owned() } else { format!("user {owner}") };
    Some(
        refusal(operation)
            .hint(format!("this daemon is {who}'s; one of your own starts with PLATTER_HOME set to a folder of yours")),
    )
}

/// What was to be done, as OpenZFS begins its messages; nothing of what everybody may do.
fn attempt(operation: &Operation) -> Option<String> {
    let or_all = |name: &Option<String>| name.clone().unwrap_or_else(|| "all".to_owned());
    Some(match operation {
        Operation::Look(_) => return None,
        Operation::StopDaemon(_) => "cannot stop the daemon".to_owned(),
        Operation::SetLogLevel(_) => "cannot ask the daemon for its log level".to_owned(),
        Operation::GetEvents(_) | Operation::ClearEvents(_) => "cannot use the event log".to_owned(),
        Operation::CreatePool(call) => format!("cannot create '{}'", call.request.name),
        Operation::ImportPool(call) => format!("cannot import '{}'", call.request.pool),
        Operation::SearchPools(_) => "cannot discover pools".to_owned(),
        Operation::ClosePool(call) => match call.closing {
            Closing::Export => format!("cannot export '{}'", call.pool),
            Closing::Destroy => format!("cannot destroy '{}'", call.pool),
        },
        Operation::OperatePool(call) => match &call.operation {
            PoolOperation::Set { .. } | PoolOperation::SetVdev { .. } => {
                format!("cannot set property for '{}'", call.pool)
            }
            PoolOperation::Scrub(_) => format!("cannot scrub '{}'", call.pool),
            PoolOperation::Clear { .. } => format!("cannot clear errors for {}", call.pool),
            PoolOperation::Sync { .. } => format!("cannot sync '{}'", call.pool),
            PoolOperation::Change(_) => format!("cannot change '{}'", call.pool),
        },
        Operation::SplitPool(call) => format!("Unable to split {}", call.pool),
        Operation::ControlJob(call) => format!("cannot control job {}", call.job.0),
        Operation::GetHistory(call) => format!("cannot get history for '{}'", call.pool),
        Operation::ClearLabel(call) => format!("cannot clear the label of '{}'", call.device.display()),
        Operation::CheckPlaces(_) => "cannot compare files".to_owned(),
        Operation::CreateDataset(call) => format!("cannot create '{}'", call.name),
        Operation::DestroyDataset(call) => format!("cannot destroy '{}'", call.name),
        Operation::RenameDataset(call) => format!("cannot rename '{}'", call.from),
        Operation::SetDatasetProperties(call) => format!("cannot set property for '{}'", call.name),
        Operation::TakeSnapshots(call) => {
            format!("cannot create snapshot '{}'", call.names.first().map_or("", String::as_str))
        }
        Operation::DestroySnapshots(call) => format!("cannot destroy snapshot {}@{}", call.dataset, call.which),
        Operation::RenameSnapshot(call) => format!("cannot rename '{}'", call.from),
        Operation::HoldSnapshot(call) if call.release => format!("cannot release hold from snapshot '{}'", call.name),
        Operation::HoldSnapshot(call) => format!("cannot hold snapshot '{}'", call.name),
        Operation::RollbackDataset(call) => {
            format!("cannot rollback '{}'", call.snapshot.split('@').next().unwrap_or_default())
        }
        Operation::CloneSnapshot(call) => format!("cannot create '{}'", call.name),
        Operation::DiffSnapshots(_) => "Unable to obtain diffs".to_owned(),
        Operation::PromoteDataset(call) => format!("cannot promote '{}'", call.name),
        Operation::SendStream(call) => format!("warning: cannot send '{}'", call.snapshot),
        Operation::ReceiveStream(_) => "cannot receive".to_owned(),
        Operation::AbortReceive(call) => format!("cannot destroy '{}'", call.target),
        Operation::CreateBookmark(call) => format!("cannot create bookmark '{}'", call.bookmark),
        Operation::Redact(call) => format!("cannot redact '{}'", call.snapshot),
        Operation::DestroyBookmark(call) => format!("cannot destroy '{}'", call.bookmark),
        Operation::SetIdQuota(call) => format!("cannot set property for '{}'", call.name),
        Operation::GetUserspace(_) => "cannot get used/quota".to_owned(),
        Operation::MountRequest(call) => format!("cannot mount '{}'", or_all(&call.dataset)),
        Operation::ListSchedules(_) => "cannot list schedules".to_owned(),
        Operation::ListDisks(_) => "cannot look at the disks".to_owned(),
        Operation::HoldDevice(call) => format!("cannot {} {}", if call.hold { "hold" } else { "release" }, call.device),
        Operation::AddReceiver(_)
        | Operation::ListReceivers(_)
        | Operation::RemoveReceiver(_)
        | Operation::TestReceivers(_) => "cannot see or change who is told".to_owned(),
        Operation::Allow(call) => format!("cannot set permissions on '{}'", call.name),
        Operation::Unallow(call) => format!("cannot set permissions on '{}'", call.name),
        Operation::UnmountRequest(call) => format!("cannot unmount '{}'", or_all(&call.target)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use platter_api::ask::Ask;
    use platter_api::messages::{ClosePool, CreateDataset, GetEvents, GetHistory, GetPool, ListMounts, OperatePool};
    use platter_api::request::ScrubAction;

    #[test]
    fn looking_is_allowed_and_changing_is_refused_in_openzfs_words() {
        let look = GetPool { pool: "tank".into(), errors: true, extended: false };
        assert_eq!(before_asking(&look.operation(), 0), None);
        assert_eq!(before_asking(&ListMounts {}.operation(), 0), None);
        let scrub = PoolOperation::Scrub(ScrubAction::Start);
        let operate = OperatePool { pool: "tank".into(), operation: scrub, command: String::new() };
        // What data sets may allow is for the daemon to say.
        assert_eq!(
            before_asking(&CreateDataset { name: "tank/x".into(), ..Default::default() }.operation(), 1000),
            None
        );
        for (operation, said) in [
            (ClosePool { pool: "tank".into(), ..ClosePool::default() }.operation(), "cannot export 'tank'"),
            (operate.operation(), "cannot scrub 'tank'"),
            (GetHistory { pool: "tank".into() }.operation(), "cannot get history for 'tank'"),
            (GetEvents::default().operation(), "cannot use the event log"),
        ] {
            let refused = before_asking(&operation, 0).expect("refused");
            assert_eq!((refused.message, refused.kind), (format!("{said}: permission denied"), ErrorKind::Denied));
        }
    }
}
