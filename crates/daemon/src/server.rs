//! HTTP over the Unix socket: takes operations, has the daemon do them, and answers.
//!
//! Every operation runs in a task of its own: a client that goes away in the middle does not stop an export halfway,
//! and one that dies takes nothing else with it.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use platter_api::ask::{Ask, Look, OTHER_VERSION, Operation, PATH};
use platter_api::delegation::{Allow, GetPermissions, Unallow};
use platter_api::disks::ListDisks;
use platter_api::faults::{GetFaults, HoldDevice};
use platter_api::job::{ControlJob, ListJobs};
use platter_api::messages::{
    CheckPlaces, ClearEvents, ClearLabel, ClosePool, Closing, CreateDataset, CreatePool, DestroyDataset, ErrorBody,
    ErrorKind, GetEvents, GetHistory, GetPool, GetStatus, GetTxgs, GetUserspace, ImportPool, ListDatasets, ListMounts,
    ListPools, LogLevel, MountRequest, OperatePool, Outcome, RenameDataset, SearchPools, SetDatasetProperties,
    SetIdQuota, SetLogLevel, StopDaemon, UnmountRequest,
};
use platter_api::notify::{AddReceiver, ListReceivers, RemoveReceiver, TestReceivers};
use platter_api::report::Detail;
use platter_api::schedules::ListSchedules;
use platter_api::snapshots::{
    CloneSnapshot, DestroySnapshots, DiffSnapshots, GetDeleteQueue, GetHolds, GetWritten, HoldSnapshot, PromoteDataset,
    RenameSnapshot, RollbackDataset, TakeSnapshots,
};
use platter_api::splits::SplitPool;
use platter_api::streams::{AbortReceive, CreateBookmark, DestroyBookmark, ReceiveStream, Redact, SendStream};
use platter_dsl::permissions::Asker as Guest;
use tokio::sync::watch;

use crate::asker::Asker;
use crate::guests::Working;
use crate::state::{Answer, Daemon};
use crate::{log, same_places, secpolicy};

/// What all requests share.
#[derive(Clone)]
pub struct Context {
    /// The daemon.
    pub daemon: Arc<Daemon>,
    /// Set to `true` to end the process.
    pub stop: watch::Sender<bool>,
}

/// How long a request for events to come is kept: the daemon waits for its requests before it ends.
const EVENTS_WAIT: Duration = Duration::from_secs(1);

/// The owner's API: all operations.
pub fn router(context: Context) -> Router {
    Router::new().route(PATH, post(ask)).fallback(no_such_path).with_state(context)
}

async fn ask(State(context): State<Context>, body: Bytes) -> Response {
    match Operation::parse(&body) {
        Ok(operation) => to_its_end(context, operation, Asker::Owner, None).await,
        Err(error) => failure(error),
    }
}

async fn no_such_path(uri: Uri) -> Response {
    let text = format!(
        "no such path in this API: '{}'; this daemon (version {}) takes operations at '{PATH}'",
        uri.path(),
        platter_api::VERSION
    );
    let body = ErrorBody::of_kind(ErrorKind::UnknownOperation, text).hint(OTHER_VERSION);
    (StatusCode::NOT_FOUND, axum::Json(body)).into_response()
}

/// A failure as a response.
pub(crate) fn failure(body: ErrorBody) -> Response {
    let status = match body.kind {
        ErrorKind::Malformed | ErrorKind::UnknownOperation => StatusCode::BAD_REQUEST,
        ErrorKind::Denied => StatusCode::FORBIDDEN,
        ErrorKind::DaemonEnds => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::UNPROCESSABLE_ENTITY,
    };
    (status, axum::Json(body)).into_response()
}

/// Does an operation to its end, even when the client does not wait for it. While the daemon ends its pools are gone
/// one by one: what is asked of them then is for the next one to answer.
pub(crate) async fn to_its_end(
    context: Context,
    operation: Operation,
    asker: Asker,
    working: Option<Working>,
) -> Response {
    let about_daemon = operation.is_about_daemon();
    let daemon = context.daemon.clone();
    let ends = || !about_daemon && daemon.is_ending();
    let refused = || {
        let body = ErrorBody::of_kind(ErrorKind::DaemonEnds, "the daemon is just ending");
        failure(body.hint("try again in a moment"))
    };
    if ends() {
        return refused();
    }
    let work = async move {
        let answered = match asker {
            Asker::Owner => answer(context, operation, &asker).await,
            Asker::Guest(guest) => answer_guest(context, operation, guest).await,
        };
        drop(working);
        answered
    };
    match tokio::spawn(work).await {
        Ok(Ok(bytes)) => ([(header::CONTENT_TYPE, "application/json")], bytes).into_response(),
        // What failed meanwhile may have failed for want of its pool.
        Ok(Err(_)) if ends() => refused(),
        Ok(Err(body)) => failure(body),
        Err(error) => failure(died(&error)),
    }
}

fn died(error: &tokio::task::JoinError) -> ErrorBody {
    tracing::error!("an operation died: {error}");
    ErrorBody::new("internal error: the operation died").hint("see the daemon's log")
}

/// The answer to `A`, and to nothing else, as JSON.
fn json<A: Ask>(answer: Answer<A::Answer>) -> Answer<Vec<u8>> {
    let word = |answer| serde_json::to_vec(&answer);
    word(answer?).map_err(|error| ErrorBody::new(format!("internal error: cannot word the answer: {error}")))
}

/// Does an operation for a guest, if he may have it done.
async fn answer_guest(context: Context, mut operation: Operation, guest: Guest) -> Answer<Vec<u8>> {
    let asked = operation.clone();
    let command = secpolicy::take_command(&mut operation);
    let (daemon, asker) = (context.daemon.clone(), Asker::Guest(guest.clone()));
    let work = Box::pin(answer(context, secpolicy::tamed(operation), &asker));
    let answered = daemon.on_behalf(&guest, &asked, work).await?;
    if let Some((name, command)) = command {
        daemon.note_command(&name, &command, guest.uid);
    }
    Ok(answered)
}

/// Does an operation.
async fn answer(Context { daemon, stop }: Context, operation: Operation, asker: &Asker) -> Answer<Vec<u8>> {
    let done = |()| Outcome::default();
    match operation {
        Operation::Look(look) => answer_look(&daemon, look).await,
        Operation::StopDaemon(_) => {
            daemon.check_may_end().await?;
            // Before the answer, so that it can say what was given up.
            let problems = daemon.shut_down().await;
            stop.send_replace(true);
            json::<StopDaemon>(Ok(Outcome { name: None, problems }))
        }
        Operation::SetLogLevel(call) => json::<SetLogLevel>(set_log_level(&call)),
        Operation::GetEvents(call) if call.wait => {
            json::<GetEvents>(Ok(daemon.events_within(call.after, EVENTS_WAIT).await))
        }
        Operation::GetEvents(call) => json::<GetEvents>(Ok(daemon.events(call.after))),
        Operation::ClearEvents(_) => json::<ClearEvents>(Ok(daemon.clear_events())),
        Operation::CreatePool(call) => json::<CreatePool>(daemon.create_pool(call).await),
        Operation::ImportPool(call) => json::<ImportPool>(daemon.import_pool(call).await),
        Operation::SearchPools(call) => json::<SearchPools>(daemon.search(&call).await),
        Operation::ClosePool(call) => json::<ClosePool>(close_pool(&daemon, &call).await),
        Operation::OperatePool(call) => json::<OperatePool>(daemon.operate_pool(call).await),
        Operation::SplitPool(call) => json::<SplitPool>(daemon.split_pool(call).await),
        Operation::ControlJob(call) => json::<ControlJob>(daemon.control_job(call).await),
        Operation::GetHistory(call) => json::<GetHistory>(daemon.history(&call.pool).await),
        Operation::ClearLabel(call) => json::<ClearLabel>(daemon.clear_label(&call).await.map(done)),
        Operation::CheckPlaces(call) => json::<CheckPlaces>(check_places(call).await.map(done)),
        Operation::CreateDataset(call) => json::<CreateDataset>(daemon.create_dataset(&call, asker).await),
        Operation::DestroyDataset(call) => json::<DestroyDataset>(daemon.destroy_dataset(&call).await),
        Operation::RenameDataset(call) => json::<RenameDataset>(daemon.rename_dataset(&call, asker).await),
        Operation::TakeSnapshots(call) => json::<TakeSnapshots>(daemon.take_snapshots(&call).await),
        Operation::DestroySnapshots(call) => json::<DestroySnapshots>(daemon.destroy_snapshots(&call).await),
        Operation::RenameSnapshot(call) => json::<RenameSnapshot>(daemon.rename_snapshot(&call).await),
        Operation::HoldSnapshot(call) => json::<HoldSnapshot>(daemon.hold_snapshot(&call).await),
        Operation::RollbackDataset(call) => json::<RollbackDataset>(daemon.rollback_dataset(&call).await),
        Operation::CloneSnapshot(call) => json::<CloneSnapshot>(daemon.clone_snapshot(&call, asker).await),
        Operation::DiffSnapshots(call) => json::<DiffSnapshots>(daemon.diff(&call, asker).await),
        Operation::PromoteDataset(call) => json::<PromoteDataset>(daemon.promote_dataset(&call).await),
        Operation::SendStream(call) => json::<SendStream>(daemon.send_stream(&call, asker).await),
        Operation::ReceiveStream(call) => json::<ReceiveStream>(daemon.receive_stream(&call, asker).await),
        Operation::AbortReceive(call) => json::<AbortReceive>(daemon.abort_receive(&call).await),
        Operation::CreateBookmark(call) => json::<CreateBookmark>(daemon.create_bookmark(&call).await),
        Operation::DestroyBookmark(call) => json::<DestroyBookmark>(daemon.destroy_bookmark(&call).await),
        Operation::Redact(call) => json::<Redact>(daemon.redact(&call).await),
        Operation::SetDatasetProperties(call) => {
            json::<SetDatasetProperties>(daemon.set_dataset_properties(&call, asker).await)
        }
        Operation::GetUserspace(call) => json::<GetUserspace>(daemon.userspace(&call.name, call.whose, asker).await),
        Operation::SetIdQuota(call) => json::<SetIdQuota>(daemon.set_id_quota(&call).await),
        Operation::Allow(call) => json::<Allow>(daemon.allow(&call).await),
        Operation::Unallow(call) => json::<Unallow>(daemon.unallow(&call).await),
        Operation::MountRequest(call) => json::<MountRequest>(daemon.mount(&call).await),
        Operation::UnmountRequest(call) => json::<UnmountRequest>(daemon.unmount(&call).await),
        Operation::ListSchedules(call) => json::<ListSchedules>(daemon.schedules(&call).await),
        Operation::ListDisks(_) => json::<ListDisks>(daemon.disks().await),
        Operation::HoldDevice(call) => json::<HoldDevice>(daemon.hold_device(&call)),
        Operation::AddReceiver(call) => json::<AddReceiver>(daemon.add_receiver(call.way)),
        Operation::ListReceivers(_) => json::<ListReceivers>(Ok(daemon.receivers())),
        Operation::RemoveReceiver(call) => json::<RemoveReceiver>(daemon.remove_receiver(call.id)),
        Operation::TestReceivers(call) => json::<TestReceivers>(daemon.test_receivers(call.id).await),
    }
}

/// Answers what only looks.
async fn answer_look(daemon: &Daemon, look: Look) -> Answer<Vec<u8>> {
    match look {
        Look::GetStatus(_) => json::<GetStatus>(Ok(daemon.status())),
        Look::ListPools(_) => json::<ListPools>(Ok(daemon.pool_names())),
        Look::GetPool(call) => {
            let detail = Detail { errors: call.errors, extended: call.extended };
            json::<GetPool>(daemon.pool_view(&call.pool, detail).await)
        }
        Look::GetTxgs(call) => json::<GetTxgs>(daemon.txgs(&call.pool, call.after)),
        Look::ListDatasets(call) => json::<ListDatasets>(daemon.datasets(&call).await),
        Look::GetDeleteQueue(call) => json::<GetDeleteQueue>(daemon.delete_queue(&call).await),
        Look::GetWritten(call) => json::<GetWritten>(daemon.written(&call).await),
        Look::GetHolds(call) => json::<GetHolds>(daemon.holds(&call).await),
        Look::ListJobs(call) => json::<ListJobs>(daemon.jobs(call.pool.as_deref()).await),
        Look::GetPermissions(call) => json::<GetPermissions>(daemon.permissions(&call).await),
        Look::GetFaults(call) => json::<GetFaults>(daemon.faults(&call)),
        Look::ListMounts(_) => json::<ListMounts>(Ok(daemon.mount_entries().await)),
    }
}

fn set_log_level(call: &SetLogLevel) -> Answer<LogLevel> {
    let level = match &call.level {
        Some(level) => log::set_level(level)?,
        None => log::level()?,
    };
    Ok(LogLevel { level })
}

async fn close_pool(daemon: &Daemon, call: &ClosePool) -> Answer<Outcome> {
    let problems = match call.closing {
        Closing::Export => daemon.export_pool(call).await?,
        Closing::Destroy => daemon.destroy_pool(call).await.map(|()| Vec::new())?,
    };
    Ok(Outcome { name: None, problems })
}

async fn check_places(call: CheckPlaces) -> Answer<()> {
    let look = move || same_places::check(&call.places);
    tokio::task::spawn_blocking(look).await.unwrap_or_else(|error| Err(died(&error)))
}
