//! `zfs send`. What is sent is kept by the engine: no lock of its pool is held meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use platter_api::messages::ErrorBody;
use platter_api::streams::{Package, SendStream, SentStream};
use platter_dsl::send::{SendFlags, SendRequest, Sending};
use platter_dsl::send_package::{Package as PreparedPackage, PackageRequest, Part};
use platter_dsl::stream_ends::StreamSink;
use platter_dsl::{DslPool, PoolError};
use platter_stream::ResumeToken;
use tokio::net::UnixStream;

use super::mounts::{no_such_dataset, pool_of};
use super::{Answer, Daemon, failed};
use crate::asker::Asker;
use crate::descriptors::Handed;
use crate::pipe::{Outlet, hung_up};

/// How often a command hears how many bytes have passed.
const TELL: Duration = Duration::from_secs(1);

/// Tells the other end of `line` how many bytes have passed, now and then, for ever.
async fn tell(line: &UnixStream, bytes: &AtomicU64) {
    loop {
        tokio::time::sleep(TELL).await;
        // A command that does not listen misses it.
        let _ = line.try_write(&bytes.load(Ordering::Relaxed).to_le_bytes());
    }
}

/// How a message begins that says why something is not sent.
pub(super) fn cannot_send(snapshot: &str) -> String {
    format!("warning: cannot send '{snapshot}'")
}

async fn prepare(dsl: &Arc<DslPool>, request: &SendRequest) -> Answer<Sending> {
    dsl.prepare_send(request).await.map_err(|error| match error {
        PoolError::NotFound(text) if text == "dataset does not exist" => no_such_dataset(&request.snapshot),
        PoolError::Busy(_) => {
            let text = "target is busy; if a filesystem, it must not be mounted";
            failed(&cannot_send(&request.snapshot), PoolError::Busy(text.into()))
        }
        error => failed(&cannot_send(&request.snapshot), error),
    })
}

/// What is gathered for a package.
fn package_request(call: &SendStream, package: &Package) -> PackageRequest {
    let (dataset, to) = call.snapshot.split_once('@').unwrap_or((&call.snapshot, ""));
    let several = package.all_between || package.replicate;
    let elsewhere = call.since.as_ref().filter(|since| several && since.split('@').next() != Some(dataset));
    let short = |since: &String| since.split_once('@').map_or(since.clone(), |(_, own)| own.to_owned());
    PackageRequest {
        dataset: dataset.to_owned(),
        to: to.to_owned(),
        from: call.since.as_ref().filter(|_| several && elsewhere.is_none()).map(short),
        all_between: package.all_between,
        from_origin: elsewhere.cloned(),
        replicate: package.replicate,
        properties: package.properties,
        backup: package.backup,
        holds: package.holds,
        without: package.without.clone(),
        skip_missing: package.skip_missing,
    }
}

impl Daemon {
    /// What a resume token asks for: the snapshot by its guid, wherever it is called how now.
    async fn resumed(&self, text: &str) -> Answer<(SendStream, SendRequest)> {
        let what = |reason: String| ErrorBody::new(format!("cannot resume send: {reason}"));
        let token = ResumeToken::parse(text).map_err(|error| {
            let text = error.to_string();
            what(text.trim_start_matches("invalid stream (").trim_end_matches(')').to_owned())
        })?;
        let (_, dsl) = self.streaming(&token.to_name)?;
        let dataset = token.to_name.split('@').next().unwrap_or_default();
        let found = dsl.snapshot_by_guid(dataset, token.to_guid).await.map_err(|error| what(error.to_string()))?;
        let Some(snapshot) = found.or_else(|| dsl.dataset_by_guid(token.to_guid)) else {
            let gone = format!("'{}' used in the initial send no longer exists", token.to_name);
            let other = format!("'{}' is no longer the same snapshot used in the initial send", token.to_name);
            let exists = dsl.snapshot(&token.to_name).await.is_ok();
            return Err(what(if exists { other } else { gone }));
        };
        let cannot = |error: PoolError| what(error.to_string());
        let mut redact = None;
        if let Some(snaps) = &token.redacted
            && !dsl.is_redacted(&snapshot).await.map_err(cannot)?
        {
            let name = snapshot.split('@').next().unwrap_or_default();
            let found = dsl.redaction_bookmark(name, token.to_guid, snaps).await.map_err(cannot)?;
            redact = Some(found.ok_or_else(|| what("the redaction bookmark used in the initial send is gone".into()))?);
        }
        let mut since = None;
        if let (Some(guid), Some(snaps)) = (token.from_guid, &token.from_redacted) {
            let name = snapshot.split('@').next().unwrap_or_default();
            since = dsl.redaction_bookmark(name, guid, snaps).await.map_err(cannot)?;
        }
        let since = match token.from_guid {
            None => None,
            Some(_) if since.is_some() => since,
            Some(guid) => {
                let mut found = dsl.snapshot_by_guid(dataset, guid).await.map_err(|error| what(error.to_string()))?;
                if found.is_none() {
                    let name = snapshot.split('@').next().unwrap_or_default();
                    found = dsl.bookmark_by_guid(name, guid).await.map_err(|error| what(error.to_string()))?;
                }
                Some(found.ok_or_else(|| what(format!("incremental source {:#x} no longer exists", guid.0)))?)
            }
        };
        let call = SendStream {
            snapshot: snapshot.clone(),
            since: since.clone(),
            large_blocks: token.large_blocks,
            embedded: token.embedded,
            compressed: token.compressed,
            ..SendStream::default()
        };
        let resume = Some(platter_dsl::send::Resume { object: token.object, offset: token.offset });
        Ok((call, SendRequest { snapshot, since, resume, redact, ..SendRequest::default() }))
    }

    /// What a receive that was broken off has left in a data set, as it would be sent.
    async fn saved(&self, call: &SendStream) -> Answer<(SendStream, SendRequest)> {
        let name = &call.snapshot;
        let what = |reason: String| ErrorBody::new(format!("saved send failed: {reason}"));
        let (_, dsl) = self.streaming(name)?;
        dsl.find(name).map_err(|_| no_such_dataset(name))?;
        let token = dsl.resume_token(name).await.map_err(|error| what(error.to_string()))?;
        let token = token.ok_or_else(|| what(format!("'{name}' has no partially received state")))?;
        let token = ResumeToken::parse(&token).map_err(|error| what(error.to_string()))?;
        let since = match token.from_guid {
            None => None,
            Some(guid) => {
                let found = dsl.snapshot_by_guid(name, guid).await.map_err(|error| what(error.to_string()))?;
                Some(found.ok_or_else(|| what(format!("incremental source {:#x} no longer exists", guid.0)))?)
            }
        };
        let asked = SendStream {
            snapshot: name.clone(),
            since: since.clone(),
            large_blocks: token.large_blocks,
            embedded: token.embedded,
            compressed: token.compressed,
            ..SendStream::default()
        };
        Ok((asked, SendRequest { snapshot: name.clone(), saved: true, since, ..SendRequest::default() }))
    }

    /// `zfs send`.
    pub async fn send_stream(&self, call: &SendStream, asker: &Asker) -> Answer<SentStream> {
        // Closed when it fails early, too: its other end would wait for ever.
        let handed = call.descriptor.as_ref().map(|descriptor| self.handed(descriptor, asker)).transpose()?;
        if let Some(package) = &call.package {
            return self.send_package(call, package, handed, asker).await;
        }
        let (asked, mut request) = match &call.token {
            Some(token) => self.resumed(token).await?,
            None if call.saved => self.saved(call).await?,
            None => (call.clone(), SendRequest { redact: call.redact.clone(), ..SendRequest::default() }),
        };
        request.snapshot.clone_from(&asked.snapshot);
        request.since.clone_from(&asked.since);
        request.flags = SendFlags {
            large_blocks: asked.large_blocks || call.large_blocks,
            embedded: asked.embedded || call.embedded,
            compressed: asked.compressed || call.compressed,
        };
        let (_, dsl) = self.streaming(&request.snapshot)?;
        if !request.snapshot.contains('@') {
            // It is kept closed meanwhile, also to be looked at.
            self.may_send(asker, std::iter::once(&request.snapshot), &request.snapshot).await?;
        }
        let sending = prepare(&dsl, &request).await?;
        let mut answer = SentStream {
            snapshot: request.snapshot.clone(),
            since: request.since.clone(),
            estimate: sending.estimate(),
            ..SentStream::default()
        };
        let Some(handed) = handed else { return Ok(answer) };
        self.may_send(asker, std::iter::once(&request.snapshot), &request.snapshot).await?;
        let send = async |outlet: &mut Outlet| dsl.send(&sending, outlet).await;
        let sent = self.let_out(&request.snapshot, handed, send).await;
        answer.bytes = sent.map_err(|error| failed(&cannot_send(&request.snapshot), error))?;
        Ok(answer)
    }

    /// Has `send` make a stream of what is called `name`, and its bytes go where they are to.
    pub(super) async fn let_out(
        &self,
        name: &str,
        handed: Handed,
        send: impl AsyncFnOnce(&mut Outlet) -> Result<u64, PoolError>,
    ) -> Result<u64, PoolError> {
        let running = self.streams.begin(pool_of(name));
        let mut told = running.told();
        let Handed { file, line, is_guests, .. } = handed;
        let mut outlet = Outlet::new(file, is_guests);
        let counter = outlet.counter();
        let interrupted = || PoolError::invalid("signal received");
        tokio::select! {
            biased;
            sent = async {
                let bytes = send(&mut outlet).await?;
                outlet.finish().await.map(|()| bytes)
            } => sent,
            () = hung_up(&line) => Err(interrupted()),
            _ = told.wait_for(|told| *told) => Err(interrupted()),
            () = tell(&line, &counter) => Err(interrupted()),
        }
    }

    /// `zfs send` of several snapshots, or with properties.
    async fn send_package(
        &self,
        call: &SendStream,
        package: &Package,
        handed: Option<Handed>,
        asker: &Asker,
    ) -> Answer<SentStream> {
        let (_, dsl) = self.streaming(&call.snapshot)?;
        let what = cannot_send(&call.snapshot);
        let several = package.all_between || package.replicate;
        let request = package_request(call, package);
        if call.snapshot.contains('@') {
            dsl.snapshot(&call.snapshot).await.map_err(|_| no_such_dataset(&call.snapshot))?;
        } else {
            dsl.find(&call.snapshot).map_err(|_| no_such_dataset(&call.snapshot))?;
        }
        if let Some(from) = request.from.as_ref().map(|from| format!("{}@{from}", request.dataset)) {
            // Below it a data set without that snapshot is sent from its beginning (`zfs_send`, `lib/libzfs`).
            dsl.snapshot(&from).await.map_err(|_| no_such_dataset(&from))?;
        }
        let mut found = dsl.prepare_package(&request).await.map_err(|error| failed(&what, error))?;
        if let (false, [part]) = (several, &mut found.parts[..]) {
            part.since.clone_from(&call.since);
        }
        let flags = SendFlags { large_blocks: call.large_blocks, embedded: call.embedded, compressed: call.compressed };
        let (mut sendings, mut parts) = (Vec::new(), Vec::new());
        for Part { snapshot, since } in found.parts.clone() {
            let redact = call.redact.clone();
            let request = SendRequest {
                snapshot: snapshot.clone(),
                since: since.clone(),
                flags,
                redact,
                ..SendRequest::default()
            };
            let sending = prepare(&dsl, &request).await?;
            parts.push((snapshot, since, sending.estimate()));
            sendings.push(sending);
        }
        let mut answer = SentStream {
            snapshot: call.snapshot.clone(),
            since: call.since.clone(),
            estimate: parts.iter().map(|(_, _, estimate)| estimate).sum(),
            bytes: 0,
            parts,
            younger: found.left_out.younger.clone(),
            warnings: found.left_out.lacking.clone(),
            failed: found.left_out.failed.clone(),
        };
        let Some(handed) = handed else { return Ok(answer) };
        let names = answer.parts.iter().map(|(snapshot, ..)| snapshot).chain([&call.snapshot]);
        self.may_send(asker, names, &call.snapshot).await?;
        let send = async |outlet: &mut Outlet| {
            let header = found.header();
            let mut bytes = header.len() as u64;
            outlet.put(header).await?;
            for sending in &sendings {
                bytes += dsl.send(sending, outlet).await?;
            }
            outlet.put(PreparedPackage::end()).await?;
            Ok(bytes)
        };
        answer.bytes = self.let_out(&call.snapshot, handed, send).await.map_err(|error| failed(&what, error))?;
        Ok(answer)
    }
}
