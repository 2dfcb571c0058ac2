//! The columns of `zpool iostat`: capacity and throughput, and with `-l -q -w -r` latencies, queues and histograms
//! (OpenZFS: `print_iostat_*` in `cmd/zpool/zpool_main.c`).

use platter_api::report::{ExtendedStats, IoCounts, VdevReport};

use crate::nice;
use crate::paint::{Paint, paint};

/// A group of columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Section {
    /// Capacity, operations, bandwidth.
    Default,
    /// Average latencies (`-l`).
    Latency,
    /// Queue depths (`-q`).
    Queues,
    /// Histograms of latencies (`-w`).
    LatencyHistogram,
    /// Histograms of sizes (`-r`).
    SizeHistogram,
}

/// A label over one or two columns.
type Label = (&'static str, usize);

impl Section {
    pub(super) fn is_histogram(self) -> bool {
        matches!(self, Self::LatencyHistogram | Self::SizeHistogram)
    }

    /// Heading of the column of names.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::LatencyHistogram => "latency",
            Self::SizeHistogram => "req_size",
            _ => "pool",
        }
    }

    /// Width of a column; `literal` when numbers are exact. Histograms find their own.
    fn width(self, literal: bool) -> usize {
        match self {
            _ if !literal => 5,
            Self::Default => 15,
            Self::Latency | Self::LatencyHistogram => 10,
            Self::Queues | Self::SizeHistogram => 6,
        }
    }

    fn top(self) -> &'static [Label] {
        match self {
            Self::Default => &[("capacity", 2), ("operations", 2), ("bandwidth", 2)],
            Self::Latency => &[
                ("total_wait", 2),
                ("disk_wait", 2),
                ("syncq_wait", 2),
                ("asyncq_wait", 2),
                ("scrub", 1),
                ("trim", 1),
                ("rebuild", 1),
            ],
            Self::Queues => &[
                ("syncq_read", 2),
                ("syncq_write", 2),
                ("asyncq_read", 2),
                ("asyncq_write", 2),
                ("scrubq_read", 2),
                ("trimq_write", 2),
                ("rebuildq_write", 2),
            ],
            Self::LatencyHistogram => &[("total_wait", 2), ("disk_wait", 2), ("syncq_wait", 2), ("asyncq_wait", 2)],
            Self::SizeHistogram => &[
                ("sync_read", 2),
                ("sync_write", 2),
                ("async_read", 2),
                ("async_write", 2),
                ("scrub", 2),
                ("trim", 2),
                ("rebuild", 2),
            ],
        }
    }

    fn bottom(self) -> Vec<Label> {
        let names: &[&'static str] = match self {
            Self::Default => &["alloc", "free", "read", "write", "read", "write"],
            Self::Latency => {
                &["read", "write", "read", "write", "read", "write", "read", "write", "wait", "wait", "wait"]
            }
            Self::Queues => &["pend", "activ"],
            Self::LatencyHistogram => {
                &["read", "write", "read", "write", "read", "write", "read", "write", "scrub", "trim", "rebuild"]
            }
            Self::SizeHistogram => &["ind", "agg"],
        };
        // Queues and sizes have the same two for each of seven classes.
        let repeat = if names.len() == 2 { 7 } else { 1 };
        std::iter::repeat_n(names, repeat).flatten().map(|name| (*name, 1)).collect()
    }
}

/// Labels over their columns, as far to the right as OpenZFS puts them.
fn labels(labels: &[Label], width: usize) -> String {
    let mut out = String::new();
    for (name, columns) in labels {
        let whole = width * columns + 2 * (columns - 1);
        let start = (whole / columns).saturating_sub(name.len() / columns);
        let rest = whole.saturating_sub(start + name.len());
        out.push_str(&format!("  {:start$}{name}{:rest$}", "", ""));
    }
    out
}

/// A line of dashes below all columns.
pub(super) fn separator(sections: &[Section], name_width: usize, literal: bool, forced: Option<usize>) -> String {
    let mut out = "-".repeat(name_width);
    for section in sections {
        let column = "-".repeat(forced.unwrap_or_else(|| section.width(literal)));
        out.push_str(&format!("  {column}").repeat(section.bottom().len()));
    }
    out.push('\n');
    out
}

/// The line above the devices of a class of their own (`print_iostat_dashes` with a name).
pub(super) fn class(sections: &[Section], name_width: usize, literal: bool, name: &str) -> String {
    let mut out = format!("{name:<name_width$}");
    for section in sections {
        let column = format!("  {:>width$}", "-", width = section.width(literal));
        out.push_str(&column.repeat(section.bottom().len()));
    }
    out.push('\n');
    out
}

/// Three lines of headings; `title` heads the names, `over` stands above it.
pub(super) fn heading(
    sections: &[Section],
    name_width: usize,
    title: &str,
    over: &str,
    literal: bool,
    forced: Option<usize>,
) -> String {
    let (mut top, mut bottom) = (format!("{over:name_width$}"), format!("{title:name_width$}"));
    for section in sections {
        let width = forced.unwrap_or_else(|| section.width(literal));
        top.push_str(&labels(section.top(), width));
        bottom.push_str(&labels(&section.bottom(), width));
    }
    let text = format!("{top}\n{bottom}\n{}", separator(sections, name_width, literal, forced).trim_end());
    text.lines().map(|line| paint(Paint::Bold, line) + "\n").collect()
}

/// What happened to a vdev since the time before.
pub(super) struct Change<'a> {
    pub now: &'a VdevReport,
    pub before: Option<&'a VdevReport>,
    /// From counts to counts per second.
    pub scale: f64,
}

impl<'a> Change<'a> {
    /// The same of a vdev right below.
    pub fn below(&self, child: &'a VdevReport) -> Self {
        let before = self.before.and_then(|old| old.children.iter().find(|other| other.guid == child.guid));
        Self { now: child, before, scale: self.scale }
    }
}

/// The cells of one section.
pub(super) fn cells(section: Section, change: &Change<'_>, literal: bool) -> Vec<(String, usize)> {
    let texts = match section {
        Section::Default => throughput(change, literal),
        Section::Latency => latencies(change, literal),
        Section::Queues => queues(change.now, literal),
        Section::LatencyHistogram | Section::SizeHistogram => Vec::new(),
    };
    texts.into_iter().map(|text| (text, section.width(literal))).collect()
}

fn number(value: u64, literal: bool) -> String {
    if literal { value.to_string() } else { nice::num(value) }
}

fn throughput(change: &Change<'_>, literal: bool) -> Vec<String> {
    let vdev = change.now;
    let mut cells = if vdev.size == 0 {
        vec![if literal { "0" } else { "-" }.to_owned(); 2]
    } else {
        vec![number(vdev.allocated, literal), number(vdev.size.saturating_sub(vdev.allocated), literal)]
    };
    let zero = IoCounts::default();
    let (now, then) = (&vdev.counts, change.before.map_or(&zero, |before| &before.counts));
    for (now, then) in [
        (now.read_ops, then.read_ops),
        (now.write_ops, then.write_ops),
        (now.read_bytes, then.read_bytes),
        (now.write_bytes, then.write_bytes),
    ] {
        cells.push(number((now.saturating_sub(then) as f64 * change.scale) as u64, literal));
    }
    cells
}

/// A histogram less what it was before.
fn since(now: &[u64], before: Option<&[u64]>) -> Vec<u64> {
    let before = before.unwrap_or(&[]);
    now.iter().enumerate().map(|(b, count)| count.saturating_sub(before.get(b).copied().unwrap_or(0))).collect()
}

/// The classes in the order of the columns; there is none for rebuilding, and no column for initializing.
const CLASSES: [usize; 6] = [0, 2, 1, 3, 4, 5];

/// Picks the histograms of a section out of a vdev's, in the order of the columns. The class that Platter's queues do
/// not have (rebuild) is empty.
fn histograms(section: Section, vdev: &VdevReport) -> Vec<Vec<u64>> {
    let none = ExtendedStats::default();
    let stats = vdev.extended.as_ref().unwrap_or(&none);
    let (total, disk, queue) = (&stats.total_wait, &stats.disk_wait, &stats.queue_wait);
    match section {
        Section::SizeHistogram => {
            // Classes are kept in another order than the columns have.
            let mut all: Vec<Vec<u64>> = CLASSES
                .iter()
                .flat_map(|&class| [stats.individual[class].clone(), stats.aggregated[class].clone()])
                .collect();
            all.extend(std::iter::repeat_n(Vec::new(), 2));
            all
        }
        _ => {
            [&total[0], &total[1], &disk[0], &disk[1], &queue[0], &queue[2], &queue[1], &queue[3], &queue[4], &queue[5]]
                .into_iter()
                .cloned()
                .chain(std::iter::once(Vec::new()))
                .collect()
        }
    }
}

fn changes(section: Section, change: &Change<'_>) -> Vec<Vec<u64>> {
    let before = change.before.map(|before| histograms(section, before));
    let now = histograms(section, change.now);
    now.iter().enumerate().map(|(i, now)| since(now, before.as_ref().map(|before| before[i].as_slice()))).collect()
}

/// Average of a histogram, each bucket counted by its middle.
fn average(histogram: &[u64]) -> u64 {
    let count: u128 = histogram.iter().map(|&count| u128::from(count)).sum();
    let total: u128 = histogram.iter().enumerate().map(|(b, &n)| u128::from(n) * u128::from((1u64 << b) * 3 / 2)).sum();
    total.checked_div(count).unwrap_or(0) as u64
}

fn latencies(change: &Change<'_>, literal: bool) -> Vec<String> {
    let exact = |nanoseconds: u64| if nanoseconds == 0 { "-".to_owned() } else { nanoseconds.to_string() };
    changes(Section::Latency, change)
        .iter()
        .map(|histogram| average(histogram))
        .map(|nanoseconds| if literal { exact(nanoseconds) } else { nice::time(nanoseconds) })
        .collect()
}

fn queues(vdev: &VdevReport, literal: bool) -> Vec<String> {
    let none = ExtendedStats::default();
    let stats = vdev.extended.as_ref().unwrap_or(&none);
    let mut cells = Vec::new();
    for class in CLASSES {
        cells.push(number(stats.pending[class], literal));
        cells.push(number(stats.active[class], literal));
    }
    cells.extend(std::iter::repeat_n("0".to_owned(), 2));
    cells
}

/// The table of a vdev's histograms.
pub(super) fn table(
    section: Section,
    change: &Change<'_>,
    name: &str,
    name_width: usize,
    literal: bool,
    scripted: bool,
) -> String {
    let columns = changes(section, change);
    let most = columns.iter().flatten().copied().max().unwrap_or(0);
    let width = if literal { 5.max(most.checked_ilog10().unwrap_or(0) as usize + 1) } else { 5 };
    let title = section.title();
    let name_width = name_width.max(title.len());
    let over_width = name_width.max(name.len());
    let mut out =
        if scripted { format!("{name}\n") } else { heading(&[section], over_width, title, name, literal, Some(width)) };
    let (first, buckets) = if section == Section::SizeHistogram { (9, 25) } else { (0, 37) };
    for bucket in first..buckets {
        let (value, text) = match section {
            Section::SizeHistogram => (1u64 << bucket, nice::num(1 << bucket)),
            _ => ((2u64 << bucket) - 1, nice::time((2 << bucket) - 1)),
        };
        out.push_str(&if scripted { value.to_string() } else { format!("{text:name_width$}") });
        for column in &columns {
            let count = column.get(bucket).copied().unwrap_or(0);
            let text = number((count as f64 * change.scale) as u64, literal);
            out.push_str(&if scripted { format!("\t{text}") } else { format!("  {text:>width$}") });
        }
        out.push('\n');
    }
    if !scripted {
        out.push_str(&"-".repeat(name_width + (width + 2) * section.bottom().len()));
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vdev() -> VdevReport {
        let mut stats =
            ExtendedStats { pending: [1, 2, 3, 4, 5, 11, 0], active: [6, 7, 8, 9, 10, 12, 0], ..Default::default() };
        // Two reads of about a microsecond, one of about two.
        stats.total_wait[0] = vec![0; 37];
        stats.total_wait[0][10] = 2;
        stats.total_wait[0][11] = 1;
        stats.individual[3] = vec![0; 25];
        stats.individual[3][12] = 2048;
        VdevReport { name: "tank".into(), kind: "root".into(), extended: Some(stats), ..VdevReport::default() }
    }

    fn joined(section: Section, literal: bool) -> String {
        let vdev = vdev();
        let change = Change { now: &vdev, before: None, scale: 1.0 };
        cells(section, &change, literal).into_iter().map(|(text, _)| text).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn headings_are_openzfs_own() {
        let expected = concat!(
            "              capacity     operations     bandwidth    total_wait     disk_wait    syncq_wait    \
             asyncq_wait  scrub   trim  rebuild\n",
            "pool        alloc   free   read  write   read  write   read  write   read  write   read  write   \
             read  write   wait   wait   wait\n",
        );
        let text = heading(&[Section::Default, Section::Latency], 10, "pool", "", false, None);
        let lines = |text: &str| text.lines().take(2).map(|line| line.trim_end().to_owned()).collect::<Vec<_>>();
        assert_eq!(lines(&text), lines(expected));
    }

    #[test]
    fn latencies_are_averages_of_bucket_middles() {
        // (2 * 1536 + 3072) / 3
        assert_eq!(joined(Section::Latency, true), "2048 - - - - - - - - - -");
        assert_eq!(joined(Section::Latency, false), "2us - - - - - - - - - -");
    }

    #[test]
    fn queues_are_in_openzfs_order() {
        assert_eq!(joined(Section::Queues, false), "1 6 3 8 2 7 4 9 5 10 11 12 0 0");
    }

    #[test]
    fn histograms_begin_where_transfers_can() {
        let vdev = vdev();
        let change = Change { now: &vdev, before: None, scale: 1.0 };
        let text = table(Section::SizeHistogram, &change, "tank", 10, false, false);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("tank          sync_read    sync_write    async_read"), "{text}");
        assert!(lines[1].starts_with("req_size      ind    agg    ind    agg"), "{text}");
        assert!(lines[3].starts_with("512             0      0"), "{text}");
        assert!(lines[6].starts_with("4K              0      0      0      0      0      0     2K      0"), "{text}");
        assert_eq!(lines.len(), 3 + 16 + 1);
        let before = change.now.clone();
        let change = Change { now: &vdev, before: Some(&before), scale: 1.0 };
        let text = table(Section::LatencyHistogram, &change, "tank", 10, false, true);
        assert_eq!(text.lines().count(), 38);
        assert!(text.starts_with("tank\n1\t0\t0"), "{text}");
    }
}
