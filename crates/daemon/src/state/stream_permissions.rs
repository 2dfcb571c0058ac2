//! What somebody else than the owner may send and receive. What it is comes out with the stream, so it is asked about
//! where it does.

use std::collections::BTreeMap;

use platter_api::ask::Ask;
use platter_api::messages::SetDatasetProperties;
use platter_api::report::DatasetKind;
use platter_api::stored_property::StoredProperty;
use platter_api::streams::{ReceiveStream, ReceivedName};
use platter_dsl::DslPool;
use platter_dsl::receive_begin::ReceiveRequest;
use platter_nvlist::NvList;

use super::clones::text;
use super::sends::cannot_send;
use super::streams::attempt;
use super::{Answer, Daemon, failed};
use crate::asker::Asker;
use crate::secpolicy::{self, Need, Place};

/// Properties by which files of a stream can give rights.
const DISTRUSTED: [&str; 2] = ["setuid", "devices"];

impl Daemon {
    /// Whether somebody may send these snapshots.
    pub(super) async fn may_send(
        &self,
        asker: &Asker,
        snapshots: impl Iterator<Item = &String>,
        named: &str,
    ) -> Answer<()> {
        let needs: Vec<Need> = snapshots.flat_map(|snapshot| secpolicy::of_sending(snapshot)).collect();
        self.permit_asker(asker, &needs, &cannot_send(named)).await
    }

    /// Whether somebody may receive anything there: before what he sends is waited for.
    pub(super) async fn may_receive_at_all(&self, call: &ReceiveStream, asker: &Asker) -> Answer<()> {
        let target = call.target.split('@').next().unwrap_or_default();
        let is_there = self.streaming(target).is_ok_and(|(_, dsl)| dsl.find(target).is_ok());
        let needs = match call.named {
            ReceivedName::Own => secpolicy::of_receiving(target, is_there, "create"),
            // What it is called comes with the stream.
            _ => secpolicy::of_receiving(&format!("{target}/x"), false, "create"),
        };
        self.permit_asker(asker, &needs, "cannot receive").await
    }

    /// Whether somebody may receive this. Within the pool's lock.
    pub(super) async fn may_receive(&self, dsl: &DslPool, request: &ReceiveRequest, asker: &Asker) -> Answer<()> {
        let Asker::Guest(_) = asker else { return Ok(()) };
        let (what, target) = (attempt(&request.begin), &request.target);
        let is_there = dsl.find(target).is_ok();
        let all = secpolicy::of_receiving(target, is_there, "receive");
        let adding = secpolicy::of_receiving(target, is_there, "receive:append");
        if request.force || self.permit_asker(asker, &adding, what).await.is_err() {
            self.permit_asker(asker, &all, what).await?;
        }
        // What has an origin is a clone of it.
        let origin = request.origin.as_ref().map(|origin| secpolicy::of_cloning(origin)).unwrap_or_default();
        let is_off = |property: &str| request.properties.get(property) == Some(&StoredProperty::Number(0));
        let trusted = |property: &&String| !DISTRUSTED.contains(&property.as_str()) || !is_off(property);
        let given = request.properties.keys().filter(trusted).flat_map(|property| {
            let name = target.clone();
            secpolicy::of_property(property, &if is_there { Place::At(name) } else { Place::New(name) })
        });
        let needs: Vec<Need> = origin.into_iter().chain(given).collect();
        if needs.is_empty() { Ok(()) } else { self.permit_asker(asker, &needs, what).await }
    }

    /// What a guest's stream brings along gives nobody rights: programs with set-id bits and device nodes, whoever they
    /// say they belong to, count only where he could have said so himself.
    pub(super) async fn distrust(
        &self,
        asker: &Asker,
        target: &str,
        properties: &mut BTreeMap<String, StoredProperty>,
    ) {
        for property in DISTRUSTED {
            let needs = secpolicy::of_property(property, &Place::New(target.to_owned()));
            if !self.lacking(asker, needs).await.is_empty() {
                properties.insert(property.to_owned(), StoredProperty::Number(0));
            }
        }
    }

    /// As [`distrust`](Self::distrust), of a data set that is there already, before it gets what the stream has.
    pub(super) async fn distrust_existing(&self, asker: &Asker, dsl: &DslPool, request: &ReceiveRequest) -> Answer<()> {
        let Asker::Guest(_) = asker else { return Ok(()) };
        let name = &request.target;
        if dsl.find(name).is_err() {
            return Ok(());
        }
        let report = dsl.dataset(name).await.map_err(|error| failed("cannot receive", error))?;
        if report.kind != DatasetKind::Filesystem {
            return Ok(());
        }
        let mut off = BTreeMap::new();
        for property in DISTRUSTED {
            let is_on = text(&report, property) != Some("off");
            let needs = secpolicy::of_property(property, &Place::At(name.clone()));
            if is_on && !self.lacking(asker, needs).await.is_empty() {
                off.insert(property.to_owned(), Some("off".to_owned()));
            }
        }
        if off.is_empty() {
            return Ok(());
        }
        // Whoever may not receive it changes nothing.
        self.may_receive(dsl, request, asker).await?;
        let set = SetDatasetProperties { name: name.clone(), properties: off, ..SetDatasetProperties::default() };
        self.set_dataset_properties(&set, &Asker::Owner).await.map(drop)
    }

    /// Turns off in what a guest clones what files of others in it could give him.
    pub(super) async fn distrust_clone(&self, asker: &Asker, name: &str, properties: &mut BTreeMap<String, String>) {
        let Asker::Guest(_) = asker else { return };
        let mut off = BTreeMap::new();
        self.distrust(asker, name, &mut off).await;
        properties.extend(off.into_keys().map(|property| (property, "off".to_owned())));
    }

    /// Properties in a stream that somebody may not set.
    pub(super) async fn not_his_to_set(&self, asker: &Asker, target: &str, properties: &NvList) -> Vec<String> {
        let mut found = Vec::new();
        if asker.may_mount() {
            return found;
        }
        for (property, _) in properties.iter() {
            let needs = secpolicy::of_property(property, &Place::At(target.to_owned()));
            if !self.lacking(asker, needs).await.is_empty() {
                found.push(property.to_owned());
            }
        }
        found
    }

    /// Sets on a data set that was there what is asked for of what is received.
    pub(super) async fn set_given(&self, target: &str, given: &BTreeMap<String, String>, asker: &Asker) -> Answer<()> {
        if given.is_empty() {
            return Ok(());
        }
        let set = SetDatasetProperties {
            name: target.to_owned(),
            properties: given.iter().map(|(name, value)| (name.clone(), Some(value.clone()))).collect(),
            ..SetDatasetProperties::default()
        };
        self.permit_part(asker, &set.clone().operation()).await?;
        let set = SetDatasetProperties { no_mount: !asker.may_mount(), ..set };
        self.set_dataset_properties(&set, asker).await.map(drop)
    }
}
