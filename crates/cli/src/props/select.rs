//! Lists of properties as given on a command line (`-o name,used`, `get all`).

use super::Info;

/// Width of the HEALTH column, which holds words although its values stand to the right.
const HEALTH_WIDTH: usize = 8;

/// A property that somebody asked for.
#[derive(Clone, Debug)]
pub enum Wanted {
    /// A native one.
    Native(&'static Info),
    /// A user property or a feature.
    Other(String),
}

impl Wanted {
    /// Its name.
    pub fn name(&self) -> &str {
        match self {
            Self::Native(info) => info.name,
            Self::Other(name) => name,
        }
    }

    /// Heading of its column.
    pub fn heading(&self) -> String {
        match self {
            Self::Native(info) => info.column.to_owned(),
            Self::Other(name) => name.to_uppercase(),
        }
    }

    /// Whether its heading stands to the right.
    pub fn right_aligned(&self) -> bool {
        match self {
            Self::Native(info) => info.right_aligned(),
            Self::Other(_) => false,
        }
    }

    /// Whether its values stand to the right: in OpenZFS's lists, those of users' space do, under a heading to the
    /// left.
    pub fn values_right_aligned(&self) -> bool {
        match self {
            Self::Native(info) => info.right_aligned(),
            Self::Other(name) => {
                name.contains('@') && !name.starts_with("feature@") && !name.starts_with("unsupported@")
            }
        }
    }

    /// Least width of its column.
    pub fn width(&self) -> usize {
        match self {
            Self::Native(info) if info.name == "health" => HEALTH_WIDTH,
            Self::Native(info) => info.width(),
            Self::Other(name) => name.chars().count(),
        }
    }

    /// Width of its column for these values.
    pub fn width_for<'a>(&self, values: impl Iterator<Item = &'a str>, literal: bool) -> usize {
        let grows = match self {
            Self::Native(info) => info.grows() || literal,
            Self::Other(_) => true,
        };
        let longest = if grows { values.map(|value| value.chars().count()).max().unwrap_or(0) } else { 0 };
        self.width().max(longest)
    }
}

/// What a list of names asks for.
#[derive(Clone, Debug)]
pub enum Selection {
    /// Everything.
    All,
    /// These, in this order.
    Listed(Vec<Wanted>),
}

/// Parses a list with what is known about names.
///
/// # Errors
/// The line that OpenZFS prints before its usage.
pub fn parse(
    list: &str,
    find: impl Fn(&str) -> Option<&'static Info>,
    is_other: impl Fn(&str) -> bool,
) -> Result<Selection, String> {
    if list == "all" {
        return Ok(Selection::All);
    }
    let mut wanted = Vec::new();
    for name in list.split(',') {
        if name.is_empty() {
            return Err("bad property list: empty property name".to_owned());
        }
        match find(name) {
            Some(info) => wanted.push(Wanted::Native(info)),
            None if is_other(name) => wanted.push(Wanted::Other(name.to_owned())),
            None => return Err(format!("bad property list: invalid property '{name}'")),
        }
    }
    Ok(Selection::Listed(wanted))
}
