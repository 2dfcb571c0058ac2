//! The two tables of the commands: one row for each thing (`list`), one row for each property (`get`).

use crate::paint::{Paint, paint};
use crate::props::select::Wanted;
use crate::props::{Shown, source_text, source_word};

/// One line: columns two blanks apart, the last one not padded when it stands to the left; tabs between them when
/// `scripted`.
pub fn line(cells: &[(String, usize, bool)], scripted: bool) -> String {
    let mut out = String::new();
    for (index, (text, width, right)) in cells.iter().enumerate() {
        if index > 0 {
            out.push_str(if scripted { "\t" } else { "  " });
        }
        let last = index + 1 == cells.len();
        if scripted || (last && !right) {
            out.push_str(text);
        } else if *right {
            out.push_str(&format!("{text:>width$}"));
        } else {
            out.push_str(&format!("{text:<width$}"));
        }
    }
    out
}

/// Rows below their headings, as wide as what is in them.
pub fn columns<const N: usize>(headings: &[&str; N], rows: &[[String; N]]) -> String {
    let headings = headings.map(str::to_owned);
    let rows: Vec<&[String; N]> = std::iter::once(&headings).chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..N).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// The table of `list`: headings and rows. `rows[i][j]` is what row i has for column j.
pub fn list(columns: &[Wanted], widths: &[usize], rows: &[Vec<String>], scripted: bool) -> String {
    let mut out = String::new();
    if !scripted {
        let head: Vec<_> = columns
            .iter()
            .zip(widths)
            .map(|(column, width)| (column.heading(), *width, column.right_aligned()))
            .collect();
        out.push_str(&paint(Paint::Bold, &line(&head, false)));
        out.push('\n');
    }
    for row in rows {
        let cells: Vec<_> = row
            .iter()
            .zip(columns.iter().zip(widths))
            .map(|(text, (column, width))| (text.clone(), *width, column.values_right_aligned()))
            .collect();
        out.push_str(&line(&cells, scripted));
        out.push('\n');
    }
    out
}

/// Widths of columns for these rows.
pub fn widths(columns: &[Wanted], rows: &[Vec<String>], literal: bool) -> Vec<usize> {
    columns
        .iter()
        .enumerate()
        .map(|(index, column)| column.width_for(rows.iter().map(|row| row[index].as_str()), literal))
        .collect()
}

/// A column of `get`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// Name of the thing.
    Name,
    /// Name of the property.
    Property,
    /// Its value.
    Value,
    /// The value that came with a stream.
    Received,
    /// Where it comes from.
    Source,
}

impl Field {
    fn heading(self) -> &'static str {
        match self {
            Self::Name => "NAME",
            Self::Property => "PROPERTY",
            Self::Value => "VALUE",
            Self::Received => "RECEIVED",
            Self::Source => "SOURCE",
        }
    }

    /// Parses `-o`.
    ///
    /// # Errors
    /// The line that OpenZFS prints before its usage.
    pub fn parse_list(list: &str, with_received: bool) -> Result<Vec<Self>, String> {
        let mut fields = Vec::new();
        for word in list.split(',') {
            let field = match word {
                "name" => Self::Name,
                "property" => Self::Property,
                "value" => Self::Value,
                "received" if with_received => Self::Received,
                "source" => Self::Source,
                "all" if !fields.is_empty() => {
                    return Err("\"all\" conflicts with specific fields given to -o option".to_owned());
                }
                "all" => {
                    fields = vec![Self::Name, Self::Property, Self::Value];
                    if with_received {
                        fields.push(Self::Received);
                    }
                    fields.push(Self::Source);
                    continue;
                }
                other => return Err(format!("invalid column name '{other}'")),
            };
            if fields.len() >= if with_received { 5 } else { 4 } {
                return Err("too many fields given to -o option".to_owned());
            }
            fields.push(field);
        }
        Ok(fields)
    }

    /// The columns when none are asked for.
    pub const DEFAULT: [Self; 4] = [Self::Name, Self::Property, Self::Value, Self::Source];
}

/// One row of `get`.
#[derive(Clone, Debug)]
pub struct GetRow {
    /// Thing.
    pub name: String,
    /// Property.
    pub property: String,
    /// Value and source.
    pub shown: Shown,
    /// The value that came with a stream.
    pub received: Option<String>,
}

/// How `get` prints.
#[derive(Clone, Debug)]
pub struct GetStyle {
    /// Columns.
    pub fields: Vec<Field>,
    /// No heading, tabs.
    pub scripted: bool,
    /// Only these sources (words of `-s`); empty shows all.
    pub sources: Vec<String>,
}

/// Widths that do not follow from the rows alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct GetWidths {
    /// Longest name of a thing.
    pub name: usize,
    /// Longest name of a property that was asked for.
    pub property: usize,
    /// Widest value of those properties, least widths included.
    pub value: usize,
}

/// The table of `get`.
pub fn get(rows: &[GetRow], style: &GetStyle, least: GetWidths) -> String {
    let shown = |row: &&GetRow| {
        style.sources.is_empty() || style.sources.iter().any(|word| word == source_word(&row.shown.source))
    };
    let rows: Vec<&GetRow> = rows.iter().filter(shown).collect();
    if rows.is_empty() {
        return String::new();
    }
    let width = |field: Field| {
        let heading = field.heading().len();
        match field {
            Field::Name => heading.max(least.name),
            Field::Property => heading.max(least.property),
            Field::Value => heading.max(least.value),
            // OpenZFS's own kludge: as if the longest name were inherited from.
            Field::Source if least.name > Field::Name.heading().len() => least.name + "inherited from".len(),
            Field::Source | Field::Received => heading,
        }
    };
    let mut out = String::new();
    if !style.scripted {
        let head: Vec<_> =
            style.fields.iter().map(|field| (field.heading().to_owned(), width(*field), false)).collect();
        out.push_str(&line(&head, false));
        out.push('\n');
    }
    for row in rows {
        let cells: Vec<_> = style
            .fields
            .iter()
            .map(|field| {
                let text = match field {
                    Field::Name => row.name.clone(),
                    Field::Property => row.property.clone(),
                    Field::Value => row.shown.value.clone(),
                    Field::Received => row.received.clone().unwrap_or_else(|| "-".to_owned()),
                    Field::Source => source_text(&row.shown.source),
                };
                (text, width(*field), false)
            })
            .collect();
        out.push_str(&line(&cells, style.scripted));
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use platter_api::report::PropertySource;

    fn row(property: &str, value: &str, source: PropertySource) -> GetRow {
        GetRow {
            name: "tank".into(),
            property: property.into(),
            shown: Shown { value: value.into(), source },
            received: None,
        }
    }

    #[test]
    fn get_is_laid_out_as_openzfs_lays_it_out() {
        let rows = [
            row("compression", "lz4", PropertySource::Local),
            row("atime", "on", PropertySource::Inherited("tank".into())),
        ];
        let style = GetStyle { fields: Field::DEFAULT.to_vec(), scripted: false, sources: Vec::new() };
        let least = GetWidths { name: 4, property: 11, value: 14 };
        let expected = "\
NAME  PROPERTY     VALUE           SOURCE
tank  compression  lz4             local
tank  atime        on              inherited from tank
";
        assert_eq!(get(&rows, &style, least), expected);
        let style =
            GetStyle { fields: vec![Field::Value, Field::Source], scripted: true, sources: vec!["local".into()] };
        assert_eq!(get(&rows, &style, least), "lz4\tlocal\n");
        let style = GetStyle { sources: vec!["received".into()], ..style };
        assert_eq!(get(&rows, &style, least), "");
    }

    #[test]
    fn fields_are_checked() {
        assert_eq!(Field::parse_list("name,value", false).unwrap(), [Field::Name, Field::Value]);
        assert_eq!(Field::parse_list("all", true).unwrap().len(), 5);
        assert_eq!(Field::parse_list("received", false).unwrap_err(), "invalid column name 'received'");
        assert!(Field::parse_list("name,all", true).unwrap_err().contains("conflicts"));
    }
}
