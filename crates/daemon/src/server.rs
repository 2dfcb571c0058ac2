//! HTTP routes over the Unix socket.
//!
//! Every operation that changes something runs in a task of its own: a client that goes away in the middle does not
//! stop an export halfway.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, Query, Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use platter_api::report::HistoryEntry;
use platter_api::report::{Detail, ImportableReport};
use platter_api::request::Changed;
use platter_api::{event::Event, txgs::TxgsReport};
use serde::Deserialize;
use tokio::sync::watch;

use crate::state::{Answer, Daemon};
use crate::{log, same_places};
use platter_api::messages::{
    ClearLabel, ClosePool, CreateDataset, CreatePool, CreatedDataset, CreatedPool, DAEMON_ENDS, DaemonStatus, Datasets,
    DestroyDataset, DestroyedDatasets, ErrorBody, ImportPool, ImportedPool, LogLevel, MountEntry, MountOutcome,
    MountRequest, OperatePool, Outcome, PoolNames, PoolView, RenameDataset, SearchPools, SeenPath,
    SetDatasetProperties, SetIdQuota, UnmountRequest, Userspace, Whose,
};

/// What the routes share.
#[derive(Clone)]
pub struct Context {
    /// The daemon.
    pub daemon: Arc<Daemon>,
    /// Set to `true` to end the process.
    pub stop: watch::Sender<bool>,
}

/// An [`ErrorBody`] as a response: 400 for what makes no sense, 422 for what failed.
pub struct Failure(ErrorBody);

impl From<ErrorBody> for Failure {
    fn from(body: ErrorBody) -> Self {
        Self(body)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let status = match self.0.exit_code {
            2 => StatusCode::BAD_REQUEST,
            DAEMON_ENDS => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::UNPROCESSABLE_ENTITY,
        };
        (status, Json(self.0)).into_response()
    }
}

pub(crate) type Reply<T> = Result<Json<T>, Failure>;

/// All routes.
pub fn router(context: Context) -> Router {
    Router::new()
        .route("/v1/daemon", get(daemon_status))
        .route("/v1/daemon/stop", post(daemon_stop))
        .route("/v1/daemon/log-level", get(log_level).post(set_log_level))
        .route("/v1/events", get(events))
        .route("/v1/events/clear", post(clear_events))
        .route("/v1/pools", get(pool_names).post(create_pool))
        .route("/v1/pools/{name}", get(pool_view))
        .route("/v1/pools/{name}/export", post(export_pool))
        .route("/v1/pools/{name}/destroy", post(destroy_pool))
        .route("/v1/pools/{name}/history", get(history))
        .route("/v1/pools/{name}/txgs", get(txgs))
        .route("/v1/operate", post(operate_pool))
        .route("/v1/labelclear", post(clear_label))
        .route("/v1/places", post(check_places))
        .route("/v1/import", post(import_pool))
        .route("/v1/import/search", post(search))
        .route("/v1/datasets", get(datasets).post(create_dataset))
        .route("/v1/datasets/destroy", post(destroy_dataset))
        .route("/v1/datasets/rename", post(rename_dataset))
        .route("/v1/datasets/userspace", get(userspace))
        .route("/v1/datasets/idquota", post(set_id_quota))
        .route("/v1/datasets/properties", post(set_dataset_properties))
        .route("/v1/mounts", get(mounts).post(mount))
        .route("/v1/unmount", post(unmount))
        .fallback(|| async {
            let body = ErrorBody { message: "no such path in this API".to_owned(), hint: None, exit_code: 2 };
            (StatusCode::NOT_FOUND, Json(body))
        })
        .layer(from_fn_with_state(context.clone(), refuse_at_the_end))
        .with_state(context)
}

/// While the daemon ends its pools are gone one by one: what is asked of them then is for the next one to answer.
pub(crate) async fn refuse_at_the_end(State(context): State<Context>, request: Request, next: Next) -> Response {
    let about_daemon = request.uri().path().starts_with("/v1/daemon");
    let ends = || !about_daemon && context.daemon.is_ending();
    let refused = || {
        let body = ErrorBody { exit_code: DAEMON_ENDS, ..ErrorBody::new("the daemon is just ending") };
        Failure(body.hint("try again in a moment")).into_response()
    };
    if ends() {
        return refused();
    }
    let response = next.run(request).await;
    // What failed meanwhile may have failed for want of its pool.
    if response.status() == StatusCode::UNPROCESSABLE_ENTITY && ends() { refused() } else { response }
}

/// Runs an operation to its end, even when the client does not wait for it.
async fn to_its_end<T: Send + 'static>(operation: impl Future<Output = Answer<T>> + Send + 'static) -> Reply<T> {
    match tokio::spawn(operation).await {
        Ok(Ok(value)) => Ok(Json(value)),
        Ok(Err(body)) => Err(Failure(body)),
        Err(error) => Err(Failure(died(&error))),
    }
}

fn died(error: &tokio::task::JoinError) -> ErrorBody {
    tracing::error!("an operation died: {error}");
    ErrorBody::new("internal error: the operation died").hint("see the daemon's log")
}

pub(crate) async fn daemon_status(State(context): State<Context>) -> Json<DaemonStatus> {
    Json(context.daemon.status())
}

async fn daemon_stop(State(context): State<Context>) -> Reply<Outcome> {
    to_its_end(async move {
        // Before the answer, so that it can say what was given up.
        let problems = context.daemon.shut_down().await;
        context.stop.send_replace(true);
        Ok(Outcome { name: None, problems })
    })
    .await
}

async fn log_level() -> Reply<LogLevel> {
    Ok(Json(LogLevel { level: log::level()? }))
}

async fn set_log_level(Json(call): Json<LogLevel>) -> Reply<LogLevel> {
    Ok(Json(LogLevel { level: log::set_level(&call.level)? }))
}

#[derive(Deserialize)]
pub(crate) struct After {
    #[serde(default)]
    after: u64,
    #[serde(default)]
    wait: bool,
}

/// How long a request for events to come is kept: the daemon waits for its requests before it ends.
const EVENTS_WAIT: Duration = Duration::from_secs(1);

async fn events(State(context): State<Context>, Query(query): Query<After>) -> Json<Vec<Event>> {
    Json(match query.wait {
        true => context.daemon.events_within(query.after, EVENTS_WAIT).await,
        false => context.daemon.events(query.after),
    })
}

async fn clear_events(State(context): State<Context>) -> Json<usize> {
    Json(context.daemon.clear_events())
}

pub(crate) async fn pool_names(State(context): State<Context>) -> Json<PoolNames> {
    Json(context.daemon.pool_names())
}

#[derive(Deserialize)]
pub(crate) struct Wanted {
    #[serde(default)]
    errors: bool,
    #[serde(default)]
    extended: bool,
}

async fn pool_view(
    State(context): State<Context>,
    Path(name): Path<String>,
    Query(query): Query<Wanted>,
) -> Reply<PoolView> {
    let detail = Detail { errors: query.errors, extended: query.extended };
    to_its_end(async move { context.daemon.pool_view(&name, detail).await }).await
}

/// Without the names of damaged files, which are not everybody's to know.
pub(crate) async fn pool_view_without_errors(
    context: State<Context>,
    name: Path<String>,
    Query(query): Query<Wanted>,
) -> Reply<PoolView> {
    pool_view(context, name, Query(Wanted { errors: false, ..query })).await
}

async fn create_pool(State(context): State<Context>, Json(call): Json<CreatePool>) -> Reply<CreatedPool> {
    to_its_end(async move { context.daemon.create_pool(call).await }).await
}

async fn export_pool(
    State(context): State<Context>,
    Path(name): Path<String>,
    Json(call): Json<ClosePool>,
) -> Reply<Outcome> {
    to_its_end(async move {
        context.daemon.export_pool(&name, &call).await.map(|problems| Outcome { name: None, problems })
    })
    .await
}

async fn destroy_pool(
    State(context): State<Context>,
    Path(name): Path<String>,
    Json(call): Json<ClosePool>,
) -> Reply<Outcome> {
    to_its_end(async move { context.daemon.destroy_pool(&name, &call).await.map(|()| Outcome::default()) }).await
}

async fn operate_pool(State(context): State<Context>, Json(call): Json<OperatePool>) -> Reply<Changed> {
    to_its_end(async move { context.daemon.operate_pool(call).await }).await
}

async fn history(State(context): State<Context>, Path(name): Path<String>) -> Reply<Vec<HistoryEntry>> {
    to_its_end(async move { context.daemon.history(&name).await }).await
}

pub(crate) async fn txgs(
    State(context): State<Context>,
    Path(name): Path<String>,
    Query(query): Query<After>,
) -> Reply<TxgsReport> {
    Ok(Json(context.daemon.txgs(&name, query.after)?))
}

async fn clear_label(State(context): State<Context>, Json(call): Json<ClearLabel>) -> Reply<Outcome> {
    to_its_end(async move { context.daemon.clear_label(&call).await.map(|()| Outcome::default()) }).await
}

async fn check_places(Json(places): Json<Vec<SeenPath>>) -> Reply<Outcome> {
    let look = move || same_places::check(&places).map(|()| Outcome::default());
    to_its_end(async move { tokio::task::spawn_blocking(look).await.unwrap_or_else(|error| Err(died(&error))) }).await
}

async fn import_pool(State(context): State<Context>, Json(call): Json<ImportPool>) -> Reply<ImportedPool> {
    to_its_end(async move { context.daemon.import_pool(call).await }).await
}

async fn search(State(context): State<Context>, Json(call): Json<SearchPools>) -> Reply<Vec<ImportableReport>> {
    let search: Vec<PathBuf> = call.search;
    to_its_end(async move { context.daemon.search(&search).await }).await
}

#[derive(Deserialize)]
pub(crate) struct Under {
    under: Option<String>,
}

pub(crate) async fn datasets(State(context): State<Context>, Query(query): Query<Under>) -> Reply<Datasets> {
    to_its_end(async move { context.daemon.datasets(query.under.as_deref()).await }).await
}

async fn create_dataset(State(context): State<Context>, Json(call): Json<CreateDataset>) -> Reply<CreatedDataset> {
    to_its_end(async move { context.daemon.create_dataset(&call).await }).await
}

async fn destroy_dataset(State(context): State<Context>, Json(call): Json<DestroyDataset>) -> Reply<DestroyedDatasets> {
    to_its_end(async move { context.daemon.destroy_dataset(&call).await }).await
}

#[derive(Deserialize)]
struct WhoseSpace {
    name: String,
    whose: Whose,
}

async fn userspace(State(context): State<Context>, Query(query): Query<WhoseSpace>) -> Reply<Userspace> {
    to_its_end(async move { context.daemon.userspace(&query.name, query.whose).await }).await
}

async fn set_id_quota(State(context): State<Context>, Json(call): Json<SetIdQuota>) -> Reply<Outcome> {
    to_its_end(async move { context.daemon.set_id_quota(&call).await }).await
}

async fn rename_dataset(State(context): State<Context>, Json(call): Json<RenameDataset>) -> Reply<Outcome> {
    to_its_end(async move { context.daemon.rename_dataset(&call).await }).await
}

async fn set_dataset_properties(
    State(context): State<Context>,
    Json(call): Json<SetDatasetProperties>,
) -> Reply<Outcome> {
    to_its_end(async move { context.daemon.set_dataset_properties(&call).await }).await
}

pub(crate) async fn mounts(State(context): State<Context>) -> Json<Vec<MountEntry>> {
    Json(context.daemon.mount_entries().await)
}

async fn mount(State(context): State<Context>, Json(call): Json<MountRequest>) -> Reply<MountOutcome> {
    to_its_end(async move { context.daemon.mount(&call).await }).await
}

async fn unmount(State(context): State<Context>, Json(call): Json<UnmountRequest>) -> Reply<Outcome> {
    to_its_end(async move { context.daemon.unmount(&call).await }).await
}
