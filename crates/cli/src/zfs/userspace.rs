//! `zfs userspace`, `groupspace` and `projectspace`.

use std::cmp::Ordering;

use platter_api::messages::{GetUserspace, IdUsage, Whose};

use super::select::named;
use crate::getopt::{Grammar, parse};
use crate::ids;
use crate::nice;
use crate::out::out;
use crate::props::zfs;
use crate::session::{Done, Failure, Session, refused, usage};

/// A column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Type,
    Name,
    Used,
    Quota,
    ObjUsed,
    ObjQuota,
}

impl Field {
    const ALL: [Self; 6] = [Self::Type, Self::Name, Self::Used, Self::Quota, Self::ObjUsed, Self::ObjQuota];

    fn heading(self) -> &'static str {
        ["TYPE", "NAME", "USED", "QUOTA", "OBJUSED", "OBJQUOTA"][self as usize]
    }

    fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|field| field.heading().to_ascii_lowercase() == name)
    }

    fn is_text(self) -> bool {
        matches!(self, Self::Type | Self::Name)
    }
}

/// One line.
#[derive(Clone, Debug)]
struct Row {
    whose: Whose,
    name: Option<String>,
    usage: IdUsage,
}

impl Row {
    fn number(&self, field: Field) -> u64 {
        match field {
            Field::Used => self.usage.used,
            Field::Quota => self.usage.quota,
            Field::ObjUsed => self.usage.objects_used.unwrap_or(0),
            Field::ObjQuota => self.usage.objects_quota,
            Field::Type | Field::Name => 0,
        }
    }

    fn text(&self, field: Field, exact: bool) -> String {
        let number = self.number(field);
        match field {
            Field::Type => type_name(self.whose).to_owned(),
            Field::Name => self.name.clone().unwrap_or_else(|| self.usage.id.to_string()),
            Field::ObjUsed | Field::ObjQuota if self.usage.objects_used.is_none() => "-".to_owned(),
            Field::Quota | Field::ObjQuota if number == 0 && !exact => "none".to_owned(),
            _ if exact => number.to_string(),
            Field::Used | Field::Quota => nice::bytes(number),
            Field::ObjUsed | Field::ObjQuota => nice::num(number),
        }
    }
}

fn type_name(whose: Whose) -> &'static str {
    match whose {
        Whose::User => "POSIX User",
        Whose::Group => "POSIX Group",
        Whose::Project => "Project",
    }
}

fn compare(a: &Row, b: &Row, sort: &[(Field, bool)]) -> Ordering {
    for (field, reverse) in sort {
        let order = match field {
            // Numbers before names, as in OpenZFS's lists.
            Field::Name => match (&a.name, &b.name) {
                (None, None) => a.usage.id.cmp(&b.usage.id),
                _ => a.text(Field::Name, true).cmp(&b.text(Field::Name, true)),
            },
            Field::Type => type_name(a.whose).cmp(type_name(b.whose)),
            _ => a.number(*field).cmp(&b.number(*field)),
        };
        let order = if *reverse { order.reverse() } else { order };
        if order != Ordering::Equal {
            return order;
        }
    }
    Ordering::Equal
}

fn table(rows: &[Row], fields: &[Field], exact: bool, scripted: bool) -> String {
    let mut lines: Vec<Vec<String>> = Vec::new();
    if !scripted {
        lines.push(fields.iter().map(|field| field.heading().to_owned()).collect());
    }
    lines.extend(rows.iter().map(|row| fields.iter().map(|field| row.text(*field, exact)).collect()));
    let width = |at: usize| lines.iter().map(|line| line[at].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..fields.len()).map(width).collect();
    let mut text = String::new();
    for line in &lines {
        for (at, cell) in line.iter().enumerate() {
            if at > 0 {
                text.push_str(if scripted { "\t" } else { "  " });
            }
            let width = if scripted { 0 } else { widths[at] };
            if fields[at].is_text() {
                text.push_str(&format!("{cell:<width$}"));
            } else {
                text.push_str(&format!("{cell:>width$}"));
            }
        }
        text.push('\n');
    }
    text
}

fn types(list: &str) -> Result<Vec<Whose>, Failure> {
    let mut found = Vec::new();
    for word in list.split(',') {
        match word {
            "posixuser" => found.push(Whose::User),
            "posixgroup" => found.push(Whose::Group),
            "smbuser" | "smbgroup" => {}
            "all" => found.extend([Whose::User, Whose::Group]),
            other => return Err(refused(format!("invalid type '{other}' for -t option"))),
        }
    }
    Ok(found)
}

fn run(session: &mut Session, words: &[String], default: Whose) -> Done {
    let short = if default == Whose::Project { "Hpo:s:S:" } else { "nHpo:s:S:t:i" };
    if words.is_empty() {
        return Err(usage(""));
    }
    let parsed = parse(Grammar { short, long: &[] }, words).map_err(usage)?;
    let name = match parsed.operands.as_slice() {
        [] => return Err(usage("missing dataset name")),
        [name] => name,
        _ => return Err(usage("too many arguments")),
    };
    let fields: Vec<Field> = match parsed.last("o") {
        None => Field::ALL.to_vec(),
        Some(list) => list
            .split(',')
            .map(|word| Field::parse(word).ok_or_else(|| refused(format!("invalid type '{word}' for -o option"))))
            .collect::<Result<_, _>>()?,
    };
    let mut sort = Vec::new();
    for given in parsed.options.iter().filter(|given| given.name == "s" || given.name == "S") {
        let field = given.argument.as_str();
        match Field::parse(field) {
            Some(field) => sort.push((field, given.name == "S")),
            // Any property may be named; only those that are shown make an order.
            None if zfs::find(field).is_some() || zfs::is_user_property(field) => {}
            None => return Err(usage(format!("invalid field '{field}'"))),
        }
    }
    sort.extend([(Field::Type, false), (Field::Name, false)]);
    let whose = match parsed.last("t") {
        None => vec![default],
        Some(list) => types(list)?,
    };
    let name = named(session, name)??;
    let mut rows = Vec::new();
    for whose in whose {
        for usage in fetch(session, &name, whose)? {
            let name = if parsed.has("n") { None } else { ids::name(whose, usage.id) };
            rows.push(Row { whose, name, usage });
        }
    }
    if rows.is_empty() {
        return Ok(0);
    }
    rows.sort_by(|a, b| compare(a, b, &sort));
    out!("{}", table(&rows, &fields, parsed.has("p"), parsed.has("H")));
    Ok(0)
}

/// Asks for everybody's use of a file system.
///
/// # Errors
/// What the daemon answers.
pub(super) fn fetch(session: &mut Session, dataset: &str, whose: Whose) -> Result<Vec<IdUsage>, Failure> {
    Ok(session.ask(GetUserspace { name: dataset.to_owned(), whose })?.usage)
}

/// Runs `zfs userspace`.
pub fn users(session: &mut Session, words: &[String]) -> Done {
    run(session, words, Whose::User)
}

/// Runs `zfs groupspace`.
pub fn groups(session: &mut Session, words: &[String]) -> Done {
    run(session, words, Whose::Group)
}

/// Runs `zfs projectspace`.
pub fn projects(session: &mut Session, words: &[String]) -> Done {
    run(session, words, Whose::Project)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_laid_out_as_openzfs_lays_it_out() {
        let row = |name: Option<&str>, id, used, quota| Row {
            whose: Whose::User,
            name: name.map(str::to_owned),
            usage: IdUsage { id, used, quota, objects_used: Some(7), objects_quota: 0 },
        };
        let mut rows = [row(Some("root"), 0, 20_480, 0), row(None, 1234, 1 << 30, 10 << 30)];
        let expected = "\
TYPE        NAME  USED  QUOTA  OBJUSED  OBJQUOTA
POSIX User  1234    1G    10G        7      none
POSIX User  root   20K   none        7      none
";
        rows.sort_by(|a, b| compare(a, b, &[(Field::Type, false), (Field::Name, false)]));
        assert_eq!(table(&rows, &Field::ALL, false, false), expected);
        rows.sort_by(|a, b| compare(a, b, &[(Field::Used, false)]));
        let fields = [Field::Name, Field::Used, Field::Quota];
        assert_eq!(table(&rows, &fields, true, true), "root\t20480\t0\n1234\t1073741824\t10737418240\n");
    }
}
