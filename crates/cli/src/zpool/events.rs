//! `zpool events`.

use std::fmt::Write;
use std::io::Write as _;

use platter_api::event::{Event, EventValue};
use platter_api::messages::{ClearEvents, GetEvents};
use platter_api::names;

use crate::getopt::{Grammar, parse};
use crate::nice;
use crate::out::{out, outln};
use crate::session::{Done, Session, usage};

/// Runs it.
pub fn run(session: &mut Session, words: &[String]) -> Done {
    let parsed = parse(Grammar { short: "vHfc", long: &[] }, words).map_err(usage)?;
    let pool = match parsed.operands.as_slice() {
        [] => None,
        [pool] => Some(pool.clone()),
        _ => return Err(usage("too many arguments")),
    };
    if let Some(name) = pool.as_deref().filter(|name| names::check_pool(name).is_err()) {
        return Err(usage(format!("invalid pool name '{name}'")));
    }
    let (verbose, scripted, follow) = (parsed.has("v"), parsed.has("H"), parsed.has("f"));
    if parsed.has("c") {
        if pool.is_some() || verbose || scripted || follow {
            return Err(usage("invalid options combined with -c"));
        }
        let count = session.ask(ClearEvents {})?;
        outln!("cleared {count} events");
        return Ok(0);
    }
    if !scripted {
        outln!("{:<30} CLASS", "TIME");
    }
    let mut last = 0;
    let mut events = session.ask(GetEvents::default())?;
    loop {
        for event in events {
            if last > 0 && event.eid > last + 1 {
                outln!("dropped {} events", event.eid - last - 1);
            }
            last = event.eid;
            if pool.as_ref().is_none_or(|pool| *pool == event.pool) {
                out!("{}", text(&event, verbose, scripted));
            }
        }
        let _ = std::io::stdout().flush();
        if !follow {
            return Ok(0);
        }
        events = match session.wait_for(GetEvents { after: last, wait: true })? {
            Some(events) => events,
            None => return Ok(0),
        };
    }
}

fn text(event: &Event, verbose: bool, scripted: bool) -> String {
    let (seconds, nanoseconds) = event.time;
    let mut out = format!("{}.{nanoseconds:09}{}", nice::event(seconds), if scripted { '\t' } else { ' ' });
    let _ = writeln!(out, "{}", event.class);
    if verbose {
        let _ = writeln!(out, "        class = \"{}\"", event.class);
        for (name, value) in &event.fields {
            let _ = match value {
                EventValue::Number(number) => writeln!(out, "        {name} = {number:#x}"),
                EventValue::Text(text) => writeln!(out, "        {name} = \"{text}\""),
            };
        }
        let _ = writeln!(out, "        time = {seconds:#x} {nanoseconds:#x} \n        eid = {:#x}\n", event.eid);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_shown_as_openzfs_shows_them() {
        let event = Event {
            eid: 17,
            time: (1_795_218_000, 42),
            class: "sysevent.fs.zfs.pool_import".into(),
            pool: "tank".into(),
            fields: vec![("pool".into(), "tank".into()), ("pool_guid".into(), 255.into())],
        };
        let time = nice::event(1_795_218_000);
        assert_eq!(time.len(), 20, "'Jun 30 1993 21:49:08'");
        let short = format!("{time}.000000042\tsysevent.fs.zfs.pool_import\n");
        assert_eq!(text(&event, false, true), short);
        let long = text(&event, true, true);
        assert!(long.starts_with(&short));
        assert!(long.contains("        pool = \"tank\"\n        pool_guid = 0xff\n"), "{long}");
        assert!(long.ends_with("        eid = 0x11\n\n"), "{long}");
    }
}
