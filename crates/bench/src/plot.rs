//! The results as bars, in an SVG.

use std::path::Path;

use plotters::prelude::*;

use crate::error::{BenchError, Result};
use crate::results::Report;
use crate::table::number;

const WIDTH: u32 = 900;
const LEFT: i32 = 220;
const LONGEST: f64 = 480.0;
const BAR: i32 = 16;
const GAP: i32 = 14;
const TOP: i32 = 40;

fn color(system: &str) -> RGBColor {
    match system {
        "platter" => RGBColor(0x2a, 0x6f, 0xdb),
        "platter-before" => RGBColor(0x1a, 0x3c, 0x7a),
        "platter-dev-fuse" => RGBColor(0x8f, 0xb4, 0xf0),
        "zfs-fuse" => RGBColor(0xd9, 0x82, 0x2b),
        "btrfs" => RGBColor(0x4a, 0x9d, 0x5b),
        "ext4" => RGBColor(0x8a, 0x5b, 0xb0),
        "xfs" => RGBColor(0xb0, 0x4a, 0x6f),
        "null-fuse" => RGBColor(0x9a, 0x9a, 0x9a),
        _ => RGBColor(0x55, 0x55, 0x55),
    }
}

/// Draws every case as a group of bars, a bar for each system; the longest of a group fills the width.
///
/// # Errors
/// What the system said to writing `path`.
pub fn draw(report: &Report, path: &Path) -> Result<()> {
    let cases = report.cases();
    let height = TOP + report.lines.len() as i32 * BAR + cases.len() as i32 * GAP + GAP;
    let area = SVGBackend::new(path, (WIDTH, height as u32)).into_drawing_area();
    let failed = |error: DrawingAreaErrorKind<_>| BenchError::Said(format!("drawing {}: {error}", path.display()));
    area.fill(&WHITE).map_err(failed)?;
    let text = |words: String, x: i32, y: i32, size: i32| {
        area.draw(&Text::new(words, (x, y), ("sans-serif", size).into_font())).map_err(failed)
    };
    text("Medians; bars of one case have one scale".into(), 8, 10, 16)?;
    let mut y = TOP;
    for case in cases {
        text(case.to_owned(), 8, y, 13)?;
        let lines: Vec<_> = report.lines.iter().filter(|line| line.case == case).collect();
        let greatest = lines.iter().map(|line| line.median).fold(0.0, f64::max).max(f64::MIN_POSITIVE);
        for line in lines {
            let length = (line.median / greatest * LONGEST) as i32;
            let bar = [(LEFT, y), (LEFT + length.max(1), y + BAR - 3)];
            area.draw(&Rectangle::new(bar, color(&line.system).filled())).map_err(failed)?;
            let words = format!("{}  {} {}", line.system, number(line.median), line.unit.name());
            text(words, LEFT + length + 6, y, 12)?;
            y += BAR;
        }
        y += GAP;
    }
    area.present().map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Line, Sample, Unit};

    #[test]
    fn every_system_has_its_bar() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("x.svg");
        let lines = ["platter", "raw"].map(|system| Line::of(system, &[Sample::plain("write-1", Unit::Rate, 3.0)]));
        draw(&Report { lines: lines.into_iter().flatten().collect(), ..Report::default() }, &path).expect("drawn");
        let svg = std::fs::read_to_string(path).expect("an SVG");
        assert!(svg.contains("platter  3.00 MiB/s") && svg.contains("write-1") && svg.matches("<rect").count() >= 3);
    }
}
