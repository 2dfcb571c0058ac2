//! JSON output in OpenZFS's schema (`-j`).

use platter_api::messages::{DatasetView, PoolView};
use platter_api::report::PropertySource;
use serde_json::{Map, Value, json};

use crate::out::outln;
use crate::props::{Shown, pool};

/// An object whose members keep their order.
pub type Object = Map<String, Value>;

/// The beginning of every answer: `{"output_version": …}`.
pub fn schema(command: &str) -> Object {
    let mut object = Object::new();
    object.insert("output_version".into(), json!({ "command": command, "vers_major": 0, "vers_minor": 1 }));
    object
}

/// A number, or its text.
pub fn number(value: u64, as_int: bool) -> Value {
    if as_int { Value::from(value) } else { Value::from(value.to_string()) }
}

/// A property: `{"value": …, "source": {"type": …, "data": …}}`.
pub fn property(shown: &Shown, as_int: bool) -> Value {
    let digits = !shown.value.is_empty() && shown.value.bytes().all(|byte| byte.is_ascii_digit());
    let value = match shown.value.parse::<u64>() {
        Ok(value) if as_int && digits => Value::from(value),
        _ => Value::from(shown.value.clone()),
    };
    let (kind, data) = match &shown.source {
        PropertySource::None => ("NONE", "-"),
        PropertySource::Default => ("DEFAULT", "-"),
        PropertySource::Local => ("LOCAL", "-"),
        PropertySource::Temporary => ("TEMPORARY", "-"),
        PropertySource::Inherited(from) => ("INHERITED", from.as_str()),
        PropertySource::Received => ("RECEIVED", "-"),
    };
    json!({ "value": value, "source": { "type": kind, "data": data } })
}

/// What every pool's object begins with.
pub fn pool_info(view: &PoolView, with_type: bool, as_int: bool) -> Object {
    let report = &view.report;
    let mut object = Object::new();
    object.insert("name".into(), report.name.clone().into());
    if with_type {
        object.insert("type".into(), "POOL".into());
    }
    object.insert("state".into(), pool::health(view).into());
    if report.guid != 0 {
        object.insert("pool_guid".into(), number(report.guid, as_int));
    }
    if report.txg != 0 {
        object.insert("txg".into(), number(report.txg, as_int));
    }
    object.insert("spa_version".into(), number(5000, as_int));
    object.insert("zpl_version".into(), number(5, as_int));
    object
}

/// What every data set's object begins with.
pub fn dataset_info(view: &DatasetView, as_int: bool) -> Object {
    let name = &view.report.name;
    let mut object = Object::new();
    object.insert("name".into(), name.clone().into());
    object.insert("type".into(), view.report.kind.name().to_uppercase().into());
    object.insert("pool".into(), name.split(['/', '@']).next().unwrap_or(name).into());
    if let Some(createtxg) = view.report.properties.get("createtxg") {
        let shown = Shown {
            value: match &createtxg.value {
                platter_api::report::PropertyValue::Number(number) => number.to_string(),
                platter_api::report::PropertyValue::Text(text) => text.clone(),
            },
            source: PropertySource::None,
        };
        object.insert("createtxg".into(), property(&shown, as_int)["value"].clone());
    }
    if let Some((dataset, snapshot)) = name.split_once('@') {
        object.insert("dataset".into(), dataset.into());
        object.insert("snapshot_name".into(), snapshot.into());
    }
    object
}

/// Prints an answer on one line.
pub fn print(object: Object) {
    outln!("{}", Value::Object(object));
}
