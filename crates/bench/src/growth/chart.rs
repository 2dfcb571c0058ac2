//! What was found as small charts, one for each series, in an SVG. Steps grow by factors, so they stand side by side.

use std::path::Path;

use plotters::prelude::*;

use super::found::Growth;
use crate::error::{BenchError, Result};
use crate::table::number;

const WIDTH: i32 = 720;
const HEIGHT: i32 = 200;
const LEFT: i32 = 60;
const TOP: i32 = 50;
const BOTTOM: i32 = 30;
const COLOR: RGBColor = RGBColor(0x2a, 0x6f, 0xdb);

/// Draws every series from zero to its greatest value.
///
/// # Errors
/// What the system said to writing `path`.
pub fn draw(growth: &Growth, path: &Path) -> Result<()> {
    let all = growth.series();
    let height = HEIGHT * all.len().max(1) as i32;
    let area = SVGBackend::new(path, (WIDTH as u32, height as u32)).into_drawing_area();
    let failed = |error: DrawingAreaErrorKind<_>| BenchError::Said(format!("drawing {}: {error}", path.display()));
    area.fill(&WHITE).map_err(failed)?;
    let text = |words: String, x: i32, y: i32, size: i32| {
        area.draw(&Text::new(words, (x, y), ("sans-serif", size).into_font())).map_err(failed)
    };
    for (index, series) in all.into_iter().enumerate() {
        let top = index as i32 * HEIGHT;
        let floor = top + HEIGHT - BOTTOM;
        let points: Vec<_> = growth.points_of(series).collect();
        let unit = points.first().map(|point| point.unit.name()).unwrap_or_default();
        text(format!("{series}: {unit}"), 8, top + 10, 15)?;
        area.draw(&PathElement::new([(LEFT / 2, floor), (WIDTH - LEFT / 2, floor)], BLACK)).map_err(failed)?;
        let greatest = points.iter().map(|point| point.value).fold(0.0, f64::max).max(f64::MIN_POSITIVE);
        let step = (WIDTH - 2 * LEFT) / points.len().max(1) as i32;
        let place = |index: usize, value: f64| {
            (LEFT + index as i32 * step, floor - (value / greatest * f64::from(HEIGHT - TOP - BOTTOM)) as i32)
        };
        let line: Vec<_> = points.iter().enumerate().map(|(index, point)| place(index, point.value)).collect();
        for (point, &(x, y)) in points.iter().zip(&line) {
            area.draw(&Circle::new((x, y), 4, COLOR.filled())).map_err(failed)?;
            text(number(point.value), x - 10, y - 20, 12)?;
            text(point.at.to_string(), x - 10, floor + 8, 12)?;
        }
        area.draw(&PathElement::new(line, COLOR)).map_err(failed)?;
    }
    area.present().map_err(failed)
}
