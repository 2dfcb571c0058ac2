//! `zpool iostat`: the first lines are averages since the pool was opened, the others over the last interval.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};

use platter_daemon::api::PoolView;
use platter_dsl::report::VdevReport;

use super::names::Naming;
use super::pools::{Repeat, Timestamp, views};
use crate::getopt::{Grammar, parse};
use crate::nice;
use crate::out::{out, outln};
use crate::paint::{Paint, paint};
use crate::session::{Done, Session, refused, usage};

const GRAMMAR: Grammar = Grammar { short: "c:gLPT:vyhplqrwnH", long: &[] };

/// Width that the numbers take beside the name.
const NUMBERS_WIDTH: usize = 42;

#[derive(Clone, Copy, Debug, Default)]
struct Style {
    verbose: bool,
    literal: bool,
    scripted: bool,
    naming: Naming,
}

impl Style {
    fn column(&self) -> usize {
        if self.literal { 15 } else { 5 }
    }
}

/// Runs it.
pub fn run(session: &mut Session, words: &[String]) -> Done {
    let parsed = parse(GRAMMAR, words).map_err(usage)?;
    if parsed.has("h") {
        return Err(usage(""));
    }
    for option in ["c", "l", "q", "r", "w"] {
        if parsed.has(option) {
            return Err(refused(format!("zpool iostat -{option}: not supported yet")));
        }
    }
    let style = Style {
        verbose: parsed.has("v"),
        literal: parsed.has("p"),
        scripted: parsed.has("H"),
        naming: Naming::from(&parsed),
    };
    let timestamp = Timestamp::parse(parsed.last("T"))?;
    let mut pools = parsed.operands.clone();
    let repeat = Repeat::take(&mut pools)?;
    let omit_first = parsed.has("y") && repeat.interval.is_some();
    let headings_once = parsed.has("n") || !std::io::stdout().is_terminal();
    let mut before: BTreeMap<u64, PoolView> = BTreeMap::new();
    let mut pool_count = 0;
    let mut since_heading = 0;
    let mut round = 0;
    loop {
        let (found, code) = views(session, &pools, false)?;
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
            if !style.scripted && (style.verbose || fresh) {
                out!("{}", heading(width, &style));
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

fn terminal_height() -> u64 {
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
            if style.verbose { style.naming.width(&view.report.vdevs, 0).max(own) } else { own }
        })
        .max()
        .unwrap_or(0);
    widest.min(terminal_width().saturating_sub(NUMBERS_WIDTH)).max(10)
}

/// Labels over their columns, as far to the right as OpenZFS puts them.
fn labels(names: &[&str], columns: usize, width: usize) -> String {
    let mut out = String::new();
    let whole = width * columns + 2 * (columns - 1);
    for name in names {
        let start = whole / columns - name.len() / columns;
        let rest = whole.saturating_sub(start + name.len());
        out.push_str(&format!("  {:start$}{name}{:rest$}", "", ""));
    }
    out
}

fn separator(width: usize, style: &Style) -> String {
    let column = "-".repeat(style.column());
    format!("{}{}\n", "-".repeat(width), format!("  {column}").repeat(6))
}

fn heading(width: usize, style: &Style) -> String {
    let top = format!("{:width$}{}", "", labels(&["capacity", "operations", "bandwidth"], 2, style.column()));
    let names = labels(&["alloc", "free", "read", "write", "read", "write"], 1, style.column());
    let text = format!("{top}\n{:<width$}{names}\n{}", "pool", separator(width, style).trim_end());
    text.lines().map(|line| paint(Paint::Bold, line) + "\n").collect()
}

fn body(pools: &[PoolView], before: &BTreeMap<u64, PoolView>, width: usize, style: &Style) -> String {
    let mut out = String::new();
    for view in pools {
        let old = before.get(&view.report.guid).filter(|old| old.open_ns < view.open_ns);
        let nanoseconds = view.open_ns - old.map_or(0, |old| old.open_ns);
        let scale = if nanoseconds == 0 { 1.0 } else { 1e9 / nanoseconds as f64 };
        add(&mut out, &view.report.vdevs, old.map(|old| &old.report.vdevs), scale, 0, width, style);
        if style.verbose && !style.scripted {
            out.push_str(&separator(width, style));
        }
    }
    if pools.len() > 1 && !style.verbose && !style.scripted {
        out.push_str(&separator(width, style));
    }
    out
}

fn add(
    out: &mut String,
    vdev: &VdevReport,
    old: Option<&VdevReport>,
    scale: f64,
    depth: usize,
    width: usize,
    style: &Style,
) {
    let name = style.naming.name(vdev);
    if style.scripted {
        out.push_str(&name);
    } else {
        let rest = width.saturating_sub(depth);
        out.push_str(&format!("{:depth$}{name:<rest$}", ""));
    }
    let column = style.column();
    let mut cell = |text: String| {
        if style.scripted {
            out.push('\t');
            out.push_str(&text);
        } else {
            out.push_str(&format!("  {text:>column$}"));
        }
    };
    let number = |value: u64| if style.literal { value.to_string() } else { nice::num(value) };
    if vdev.size == 0 {
        let nothing = if style.literal { "0" } else { "-" };
        cell(nothing.to_owned());
        cell(nothing.to_owned());
    } else {
        cell(number(vdev.allocated));
        cell(number(vdev.size.saturating_sub(vdev.allocated)));
    }
    let zero = platter_dsl::report::IoCounts::default();
    let (now, then) = (&vdev.counts, old.map_or(&zero, |old| &old.counts));
    for (now, then) in [
        (now.read_ops, then.read_ops),
        (now.write_ops, then.write_ops),
        (now.read_bytes, then.read_bytes),
        (now.write_bytes, then.write_bytes),
    ] {
        cell(number((now.saturating_sub(then) as f64 * scale) as u64));
    }
    out.push('\n');
    if style.verbose {
        for child in &vdev.children {
            let before = old.and_then(|old| old.children.iter().find(|other| other.guid == child.guid));
            add(out, child, before, scale, depth + 2, width, style);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zpool::status::tests::example;
    use platter_dsl::report::IoCounts;

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

    #[test]
    fn the_heading_is_openzfs_own() {
        let expected = concat!(
            "              capacity     operations     bandwidth \n",
            "pool        alloc   free   read  write   read  write\n",
            "----------  -----  -----  -----  -----  -----  -----\n",
        );
        assert_eq!(heading(10, &Style::default()), expected);
    }

    #[test]
    fn the_first_lines_are_averages_since_the_pool_was_opened_and_the_next_of_the_interval() {
        let first = busy(10, 1000);
        let style = Style::default();
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
    fn vdevs_are_indented_and_end_with_a_line() {
        let style = Style { verbose: true, ..Style::default() };
        let text = body(&[busy(10, 0)], &BTreeMap::new(), 12, &style);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 8);
        assert_eq!(lines[1], "  raidz1-0     145M   431M      0      0      0      0");
        assert_eq!(lines[2], "    /disk/d0      -      -      0      0      0      0");
        assert_eq!(lines[7], "------------  -----  -----  -----  -----  -----  -----");
    }
}
