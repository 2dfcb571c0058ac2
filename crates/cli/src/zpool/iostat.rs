//! `zpool iostat`: the first lines are averages since the pool was opened, the others over the last interval.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};

use platter_api::messages::{ListPools, PoolView};
use platter_api::report::{Detail, VdevReport};

use super::iostat_columns::{Change, Section, cells, class, heading, separator, table};
use super::names::Naming;
use super::pools::{Repeat, Timestamp, views};
use crate::getopt::{Grammar, Parsed, parse};
use crate::out::{out, outln};
use crate::session::{Done, Failure, Session, refused, usage};

const GRAMMAR: Grammar = Grammar { short: "c:gLPT:vyhplqrwnH", long: &[] };

/// Width that the numbers take beside the name.
const NUMBERS_WIDTH: usize = 42;

#[derive(Clone, Debug)]
struct Style {
    verbose: bool,
    literal: bool,
    scripted: bool,
    naming: Naming,
    sections: Vec<Section>,
    /// Vdevs to show, by name; empty for all.
    only: Vec<String>,
}

impl Style {
    fn from(parsed: &Parsed) -> Result<Self, Failure> {
        let (latency, queues) = (parsed.has("l"), parsed.has("q"));
        let sections = match (parsed.has("w"), parsed.has("r")) {
            (false, false) => {
                let mut sections = vec![Section::Default];
                sections.extend(latency.then_some(Section::Latency));
                sections.extend(queues.then_some(Section::Queues));
                sections
            }
            _ if latency || queues => return Err(usage("[-r|-w] isn't allowed with [-c|-l|-q]")),
            (true, true) => return Err(usage("Only one of [-r|-w] can be passed at a time")),
            (true, false) => vec![Section::LatencyHistogram],
            (false, true) => vec![Section::SizeHistogram],
        };
        Ok(Self {
            verbose: parsed.has("v"),
            literal: parsed.has("p"),
            scripted: parsed.has("H"),
            naming: Naming::from(parsed),
            sections,
            only: Vec::new(),
        })
    }

    fn is_histogram(&self) -> bool {
        self.sections[0].is_histogram()
    }

    fn is_shown(&self, vdev: &VdevReport) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| self.names(vdev).contains(name))
    }

    /// What a vdev may be called on the command line.
    fn names(&self, vdev: &VdevReport) -> Vec<String> {
        let mut names = vec![self.naming.name(vdev), vdev.name.clone(), vdev.guid.to_string()];
        names.extend(vdev.path.clone());
        names.extend(vdev.path.as_deref().and_then(|path| path.rsplit('/').next()).map(str::to_owned));
        names
    }
}

/// Runs it.
pub fn run(session: &mut Session, words: &[String]) -> Done {
    let parsed = parse(GRAMMAR, words).map_err(usage)?;
    if parsed.has("h") {
        return Err(usage(""));
    }
    if parsed.has("c") {
        return Err(refused("zpool iostat -c: scripts are not supported yet"));
    }
    let mut style = Style::from(&parsed)?;
    let timestamp = Timestamp::parse(parsed.last("T"))?;
    let mut pools = parsed.operands.clone();
    let repeat = Repeat::take(&mut pools)?;
    let detail = Detail { errors: false, extended: style.sections != [Section::Default] };
    split_vdevs(session, &mut pools, &mut style)?;
    let omit_first = parsed.has("y") && repeat.interval.is_some();
    let headings_once = parsed.has("n") || !std::io::stdout().is_terminal();
    let mut before: BTreeMap<u64, PoolView> = BTreeMap::new();
    let mut pool_count = 0;
    let mut since_heading = 0;
    let mut round = 0;
    loop {
        let (found, code) = views(session, &pools, detail)?;
        if found.is_empty() {
            if code == 0 {
                eprintln!("no pools available");
            }
            if repeat.interval.is_none() || code != 0 {
                return Ok(1);
            }
        }
        let skip = omit_first && round == 0;
        if !found.is_empty() && !skip {
            if let Some(timestamp) = timestamp {
                outln!("{}", timestamp.now());
            }
            let width = name_width(&found, &style);
            let height = if headings_once { u64::MAX } else { terminal_height().saturating_sub(3).max(1) };
            let fresh = found.len() != pool_count || since_heading >= height;
            if !style.scripted && !style.is_histogram() && (style.verbose || fresh) {
                let title = if style.only.is_empty() { "pool" } else { "vdev" };
                out!("{}", heading(&style.sections, width, title, "", style.literal, None));
                since_heading = 0;
            }
            since_heading += found.len() as u64;
            pool_count = found.len();
            out!("{}", body(&found, &before, width, &style));
            let _ = std::io::stdout().flush();
        }
        before = found.into_iter().map(|view| (view.report.guid, view)).collect();
        round += 1;
        let counted = if omit_first { round - 1 } else { round };
        if !repeat.again(session, counted) {
            return Ok(code);
        }
    }
}

/// `[pool] vdev ...`: takes the names of vdevs out of the words and makes sure that they exist.
fn split_vdevs(session: &mut Session, pools: &mut Vec<String>, style: &mut Style) -> Result<(), Failure> {
    if pools.is_empty() {
        return Ok(());
    }
    let known = session.ask(ListPools {})?.pools;
    // One word that is neither is for the error message about pools.
    if pools.iter().all(|name| known.contains(name)) {
        return Ok(());
    }
    let of_pool = known.contains(&pools[0]);
    let wanted = pools.split_off(usize::from(of_pool));
    let (found, _) = views(session, pools, Detail::default())?;
    let has = |name: &String| {
        fn any(style: &Style, vdev: &VdevReport, name: &String) -> bool {
            style.names(vdev).contains(name) || vdev.children.iter().any(|child| any(style, child, name))
        }
        found
            .iter()
            .flat_map(|view| view.report.vdevs.children.iter().chain(&view.report.caches))
            .any(|vdev| any(style, vdev, name))
    };
    if let Some(unknown) = wanted.iter().find(|name| !has(name)) {
        if of_pool {
            return Err(usage(format!(
                "Expected either a list of pools, or list of vdevs in \"{}\", but got:\n\t{unknown} (unknown)\n",
                pools[0]
            )));
        }
        return Err(refused(format!("cannot open '{unknown}': no such pool or vdev")));
    }
    style.only = wanted;
    style.verbose = true;
    Ok(())
}

pub(super) fn terminal_height() -> u64 {
    rustix::termios::tcgetwinsize(std::io::stdout()).map_or(24, |size| u64::from(size.ws_row))
}

fn terminal_width() -> usize {
    rustix::termios::tcgetwinsize(std::io::stdout()).map_or(80, |size| usize::from(size.ws_col))
}

fn name_width(pools: &[PoolView], style: &Style) -> usize {
    let widest = pools
        .iter()
        .map(|view| {
            let own = view.report.name.chars().count();
            let caches = view.report.caches.iter().map(|cache| style.naming.width(cache, 2));
            let all = caches.fold(style.naming.width(&view.report.vdevs, 0), usize::max);
            if style.verbose { all.max(own) } else { own }
        })
        .max()
        .unwrap_or(0);
    widest.min(terminal_width().saturating_sub(NUMBERS_WIDTH)).max(10)
}

fn body(pools: &[PoolView], before: &BTreeMap<u64, PoolView>, width: usize, style: &Style) -> String {
    let mut out = String::new();
    let line = separator(&style.sections, width, style.literal, None);
    for view in pools {
        let old = before.get(&view.report.guid).filter(|old| old.open_ns < view.open_ns);
        let nanoseconds = view.open_ns - old.map_or(0, |old| old.open_ns);
        let scale = match nanoseconds {
            // Histograms without an interval are those of the pool's whole life.
            _ if old.is_none() && style.is_histogram() => 1.0,
            0 => 1.0,
            nanoseconds => 1e9 / nanoseconds as f64,
        };
        let change = Change { now: &view.report.vdevs, before: old.map(|old| &old.report.vdevs), scale };
        add(&mut out, &change, 0, width, style);
        let caches = &view.report.caches;
        if style.verbose && !caches.is_empty() {
            if style.only.is_empty() && !style.scripted && !style.is_histogram() {
                out.push_str(&class(&style.sections, width, style.literal, "cache"));
            }
            for cache in caches {
                let before = old.and_then(|old| old.report.caches.iter().find(|other| other.guid == cache.guid));
                add(&mut out, &Change { now: cache, before, scale }, 2, width, style);
            }
        }
        if style.verbose && style.only.is_empty() && !style.scripted && !style.is_histogram() {
            out.push_str(&line);
        }
    }
    let end = (pools.len() > 1 && !style.verbose) || !style.only.is_empty();
    if end && !style.scripted && !style.is_histogram() {
        out.push_str(&line);
    }
    out
}

fn add(out: &mut String, change: &Change<'_>, depth: usize, width: usize, style: &Style) {
    let vdev = change.now;
    let name = style.naming.name(vdev);
    if style.is_shown(vdev) {
        let depth = if style.only.is_empty() { depth } else { 0 };
        if style.is_histogram() {
            out.push('\n');
            out.push_str(&table(style.sections[0], change, &name, width, style.literal, style.scripted));
        } else if style.scripted {
            out.push_str(&name);
        } else {
            let rest = width.saturating_sub(depth);
            out.push_str(&format!("{:depth$}{name:<rest$}", ""));
        }
        for (text, column) in style.sections.iter().flat_map(|section| cells(*section, change, style.literal)) {
            if style.scripted {
                out.push('\t');
                out.push_str(&text);
            } else {
                out.push_str(&format!("  {text:>column$}"));
            }
        }
        if !style.is_histogram() {
            out.push('\n');
        }
    }
    if style.verbose {
        let below = |out: &mut String, child| add(out, &change.below(child), depth + 2, width, style);
        vdev.ordinary().for_each(|child| below(out, child));
        if vdev.logs().next().is_some() && style.only.is_empty() && !style.scripted && !style.is_histogram() {
            out.push_str(&class(&style.sections, width, style.literal, "logs"));
        }
        vdev.logs().for_each(|child| below(out, child));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zpool::status::tests::example;
    use platter_api::report::IoCounts;

    fn busy(open_seconds: u64, reads: u64) -> PoolView {
        let mut view = example();
        view.open_ns = open_seconds * 1_000_000_000;
        view.report.vdevs.counts = IoCounts {
            read_ops: reads,
            read_bytes: reads * 131_072,
            write_ops: 20,
            write_bytes: 15_360,
            ..IoCounts::default()
        };
        view
    }

    fn style(words: &str) -> Style {
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        Style::from(&parse(GRAMMAR, &words).unwrap()).unwrap()
    }

    #[test]
    fn the_heading_is_openzfs_own() {
        let expected = concat!(
            "              capacity     operations     bandwidth \n",
            "pool        alloc   free   read  write   read  write\n",
            "----------  -----  -----  -----  -----  -----  -----\n",
        );
        assert_eq!(heading(&[Section::Default], 10, "pool", "", false, None), expected);
    }

    #[test]
    fn the_first_lines_are_averages_since_the_pool_was_opened_and_the_next_of_the_interval() {
        let first = busy(10, 1000);
        let style = style("");
        assert_eq!(
            body(std::slice::from_ref(&first), &BTreeMap::new(), 10, &style),
            "refz1        145M   431M    100      2  12.5M  1.50K\n"
        );
        let before = [(first.report.guid, first)].into();
        assert_eq!(
            body(&[busy(12, 1100)], &before, 10, &Style { scripted: true, ..style }),
            "refz1\t145M\t431M\t50\t0\t6.25M\t0\n"
        );
    }

    #[test]
    fn histograms_stand_alone() {
        for words in ["-w -l", "-r -q", "-w -r"] {
            let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
            assert!(Style::from(&parse(GRAMMAR, &words).unwrap()).is_err(), "{words:?}");
        }
        assert_eq!(style("-lq").sections, [Section::Default, Section::Latency, Section::Queues]);
        let text = body(&[busy(10, 0)], &BTreeMap::new(), 12, &style("-rv"));
        assert_eq!(text.matches("req_size").count(), 7, "one table for each vdev: {text}");
    }

    #[test]
    fn single_vdevs_are_not_indented() {
        let mut style = style("-v");
        style.only = vec!["/disk/d1".into()];
        let text = body(&[busy(10, 0)], &BTreeMap::new(), 12, &style);
        assert!(text.starts_with("/disk/d1          -      -      0"), "{text}");
        assert_eq!(text.lines().count(), 2);
    }

    #[test]
    fn vdevs_are_indented_and_end_with_a_line() {
        let style = style("-v");
        let text = body(&[busy(10, 0)], &BTreeMap::new(), 12, &style);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 8);
        assert_eq!(lines[1], "  raidz1-0     145M   431M      0      0      0      0");
        assert_eq!(lines[2], "    /disk/d0      -      -      0      0      0      0");
        assert_eq!(lines[7], "------------  -----  -----  -----  -----  -----  -----");
    }
}
