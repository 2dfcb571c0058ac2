//! What is said of a finding: to its device's record, to who is told, and what its owner should do.

use platter_api::faults::{Cause, DeviceSigns, DeviceState, LineKind, Verdict};

use crate::diagnosis::Finding;

/// A finding in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Words {
    /// What kind of line of a record it makes.
    pub kind: LineKind,
    /// For a person.
    pub text: String,
    /// The class of event that it is to who is told; none where nobody needs to know.
    pub class: Option<&'static str>,
}

/// The class of the events of single errors.
fn report_class(cause: Cause) -> &'static str {
    match cause {
        Cause::Io => "ereport.fs.zfs.io",
        Cause::Checksum => "ereport.fs.zfs.checksum",
        Cause::SlowIo => "ereport.fs.zfs.delay",
    }
}

fn state_class(state: DeviceState) -> &'static str {
    match state {
        DeviceState::Removed => "resource.fs.zfs.removed",
        _ => "resource.fs.zfs.statechange",
    }
}

/// What a verdict means.
fn verdict(cause: Cause) -> &'static str {
    match cause.verdict() {
        Verdict::Faulted => "it is to be given up",
        Verdict::Degraded => "it is used on, and not relied on any more",
    }
}

/// What several devices do at once.
fn nobodys_fault(what: &str, devices: &[DeviceSigns]) -> String {
    let names: Vec<&str> = devices.iter().map(|device| device.name.as_str()).collect();
    format!("{what}: a cable, a controller or the host, and no device's fault ({})", names.join(", "))
}

fn helper(device: &DeviceSigns) -> &str {
    device.helper.as_deref().unwrap_or("another device")
}

/// A finding in words.
pub fn words(finding: &Finding) -> Words {
    let say = |kind, class, text| Words { kind, text, class };
    match finding {
        Finding::Seen { cause, count, .. } => say(LineKind::Seen, None, format!("{count} {}", cause.plural())),
        Finding::ScanErrors { device } => {
            let text = format!("a scrub or resilver found wrong bytes in {} places", device.scan_errors);
            say(LineKind::Seen, Some(report_class(Cause::Checksum)), text)
        }
        Finding::Judged { cause, count, seconds, .. } => {
            let text = format!("too many errors: {count} {} within {seconds} s; {}", cause.plural(), verdict(*cause));
            say(LineKind::Verdict, Some(cause.class()), text)
        }
        Finding::Together { devices, cause } => {
            let text =
                nobodys_fault(&format!("{} on {} devices at the same time", cause.plural(), devices.len()), devices);
            say(LineKind::Verdict, Some(report_class(*cause)), text)
        }
        Finding::Silent { seconds, .. } => {
            let text = format!("it has not answered for {seconds} s; it is to be given up");
            say(LineKind::Verdict, Some("ereport.fs.zfs.deadman"), text)
        }
        Finding::AllSilent { devices } => {
            let text = nobodys_fault(&format!("{} devices do not answer", devices.len()), devices);
            say(LineKind::Verdict, Some("ereport.fs.zfs.deadman"), text)
        }
        Finding::Changed { device, from } => {
            let why = device.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
            let before = from.map(|from| format!(", it was {}", from.name())).unwrap_or_default();
            let text = format!("the device is {}{before}{why}", device.state.name());
            // Who took it offline knows, and a verdict was told when it was found.
            let is_known = device.is_judged && matches!(device.state, DeviceState::Faulted | DeviceState::Degraded);
            // One that is gone for another reason now is still gone.
            let is_known = is_known || from.is_some_and(|from| !from.is_usable() && !device.state.is_usable());
            let told = device.state != DeviceState::Offline && *from != Some(DeviceState::Offline) && !is_known;
            say(LineKind::Seen, told.then(|| state_class(device.state)), text)
        }
        Finding::Helped { device } => {
            let text = format!("{} stands in for it, and is being resilvered", helper(device));
            say(LineKind::Done, Some("sysevent.fs.zfs.vdev_spare"), text)
        }
        Finding::Whole { device } => {
            let text = format!("{} has everything", helper(device));
            say(LineKind::Done, Some("sysevent.fs.zfs.resilver_finish"), text)
        }
        Finding::Alone { .. } => say(LineKind::Done, None, "nothing stands in for it any more".to_owned()),
    }
}

/// What the owner of a device should do now.
pub fn action(pool: &str, device: &DeviceSigns) -> String {
    let name = &device.name;
    let replace = format!("'zpool replace {pool} {name} NEW'");
    let clear = format!("'zpool clear {pool} {name}'");
    match (device.state, &device.helper) {
        _ if device.is_held => {
            format!("It is held: only commands change anything. 'platter faults release {name}' ends that.")
        }
        (DeviceState::Offline, _) => format!("'zpool online {pool} {name}' when it is to be used again."),
        (DeviceState::Online, Some(_)) if !device.has_everything => "Nothing: it gets what it missed.".to_owned(),
        (DeviceState::Online, None) if device.count_all() == 0 => "Nothing.".to_owned(),
        (DeviceState::Online, _) => format!("Watch it; {clear} forgets its errors."),
        (_, Some(helper)) if device.helper_has_everything => format!(
            "Replace it when it suits you: {replace}; {helper} is free again then. Or let that stay in its place: \
             'zpool detach {pool} {name}'."
        ),
        (_, Some(helper)) => format!("Wait until {helper} has everything, then replace it: {replace}."),
        (DeviceState::Degraded, None) => {
            format!("Replace it: {replace}. If it was not the device's fault, {clear} trusts it again.")
        }
        (DeviceState::Faulted, None) => {
            format!("Replace it now, as nothing stands in for it: {replace}. {clear} tries it once more.")
        }
        (DeviceState::Removed | DeviceState::Unavailable, None) => {
            format!("Attach it, then 'zpool online {pool} {name}'; or replace it now: {replace}.")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(state: DeviceState) -> DeviceSigns {
        DeviceSigns { guid: 7, name: "/d7".into(), state, ..DeviceSigns::default() }
    }

    #[test]
    fn every_state_has_its_way_out() {
        let cases = [
            (DeviceState::Faulted, "Replace it now"),
            (DeviceState::Degraded, "trusts it again"),
            (DeviceState::Removed, "Attach it"),
            (DeviceState::Unavailable, "zpool online tank /d7"),
            (DeviceState::Offline, "to be used again"),
            (DeviceState::Online, "Nothing."),
        ];
        for (state, said) in cases {
            assert!(action("tank", &device(state)).contains(said), "{state:?}");
            let held = DeviceSigns { is_held: true, ..device(state) };
            assert!(action("tank", &held).contains("platter faults release /d7"));
        }
        let helped = DeviceSigns { helper: Some("/s".into()), ..device(DeviceState::Faulted) };
        assert!(action("tank", &helped).starts_with("Wait until /s"));
        let whole = DeviceSigns { helper_has_everything: true, ..helped };
        assert!(action("tank", &whole).contains("zpool detach tank /d7"));
    }

    #[test]
    fn who_is_told_what() {
        let judged = Finding::Judged { device: device(DeviceState::Online), cause: Cause::Io, count: 12, seconds: 600 };
        let told = words(&judged);
        assert_eq!(told.class, Some("fault.fs.zfs.vdev.io"));
        assert_eq!(told.text, "too many errors: 12 I/O errors within 600 s; it is to be given up");
        let seen = Finding::Seen { device: device(DeviceState::Online), cause: Cause::Checksum, count: 1 };
        assert_eq!(words(&seen).class, None);
        let offline = Finding::Changed { device: device(DeviceState::Offline), from: Some(DeviceState::Online) };
        assert_eq!(words(&offline).class, None);
    }
}
