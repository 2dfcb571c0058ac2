//! Random histories against a model in memory: whatever the order of operations, the file system answers as the model
//! does and holds the same tree, before and after it is opened again.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::{TestPool, properties, read_all};
use platter_ondisk::ObjectId;
use platter_zpl::{Fallocate, FileKind, NewFile, RenameFlags, SetAttr, Zpl};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Op {
    Create { parent: usize, name: usize },
    Mkdir { parent: usize, name: usize },
    Symlink { parent: usize, name: usize, length: usize },
    Link { file: usize, parent: usize, name: usize },
    Unlink { parent: usize, name: usize },
    Rmdir { parent: usize, name: usize },
    Rename { parent: usize, name: usize, new_parent: usize, new_name: usize, exchange: bool },
    Write { file: usize, offset: u64, length: usize, byte: u8 },
    Truncate { file: usize, size: u64 },
    Punch { file: usize, offset: u64, length: u64 },
    Chmod { any: usize, mode: u32 },
    Sync,
    Reopen,
}

const NAMES: [&str; 5] =
    ["a", "b", "c", "a much longer name that does not fit into a micro ZAP's entry of 64 bytes", "d"];

fn op() -> impl Strategy<Value = Op> {
    let (place, name) = (0usize..6, 0usize..NAMES.len());
    let offset = prop_oneof![0u64..2000, 0u64..70_000, Just(8192), Just(16384)];
    prop_oneof![
        3 => (place.clone(), name.clone()).prop_map(|(parent, name)| Op::Create { parent, name }),
        2 => (place.clone(), name.clone()).prop_map(|(parent, name)| Op::Mkdir { parent, name }),
        1 => (place.clone(), name.clone(), 1usize..600).prop_map(|(parent, name, length)| Op::Symlink {
            parent,
            name,
            length
        }),
        1 => (place.clone(), place.clone(), name.clone()).prop_map(|(file, parent, name)| Op::Link {
            file,
            parent,
            name
        }),
        2 => (place.clone(), name.clone()).prop_map(|(parent, name)| Op::Unlink { parent, name }),
        1 => (place.clone(), name.clone()).prop_map(|(parent, name)| Op::Rmdir { parent, name }),
        3 => (place.clone(), name.clone(), place.clone(), name, any::<bool>()).prop_map(
            |(parent, name, new_parent, new_name, exchange)| Op::Rename {
                parent,
                name,
                new_parent,
                new_name,
                exchange
            }
        ),
        6 => (place.clone(), offset.clone(), 1usize..20_000, any::<u8>()).prop_map(|(file, offset, length, byte)| {
            Op::Write { file, offset, length, byte }
        }),
        2 => (place.clone(), offset.clone()).prop_map(|(file, size)| Op::Truncate { file, size }),
        2 => (place.clone(), offset, 1u64..40_000).prop_map(|(file, offset, length)| Op::Punch {
            file,
            offset,
            length
        }),
        1 => (place, 0u32..0o1000).prop_map(|(any, mode)| Op::Chmod { any, mode }),
        1 => Just(Op::Sync),
        1 => Just(Op::Reopen),
    ]
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Content {
    File(Vec<u8>),
    Directory(BTreeMap<String, u64>),
    Link(Vec<u8>),
}

#[derive(Clone, Debug)]
struct Node {
    content: Content,
    links: u32,
    parent: u64,
    mode: u32,
}

struct Model {
    nodes: BTreeMap<u64, Node>,
    root: u64,
}

/// The outcome of an operation that is worth comparing: done or refused, and the new object.
type Outcome = Result<Option<u64>, i32>;

impl Model {
    fn pick(&self, index: usize, wanted: impl Fn(&Content) -> bool) -> Option<u64> {
        let fitting: Vec<u64> = self.nodes.iter().filter(|(_, n)| wanted(&n.content)).map(|(&id, _)| id).collect();
        (!fitting.is_empty()).then(|| fitting[index % fitting.len()])
    }

    fn directory(&self, index: usize) -> u64 {
        self.pick(index, |c| matches!(c, Content::Directory(_))).expect("the root is there")
    }

    fn file(&self, index: usize) -> Option<u64> {
        self.pick(index, |c| matches!(c, Content::File(_)))
    }

    fn entries(&mut self, directory: u64) -> &mut BTreeMap<String, u64> {
        match &mut self.nodes.get_mut(&directory).unwrap().content {
            Content::Directory(entries) => entries,
            _ => unreachable!(),
        }
    }

    fn is_directory(&self, node: u64) -> bool {
        matches!(self.nodes[&node].content, Content::Directory(_))
    }

    fn is_empty(&self, node: u64) -> bool {
        matches!(&self.nodes[&node].content, Content::Directory(entries) if entries.is_empty())
    }

    fn add(&mut self, parent: u64, name: &str, object: u64, content: Content, mode: u32) {
        let directory = matches!(content, Content::Directory(_));
        self.nodes.insert(object, Node { content, links: if directory { 2 } else { 1 }, parent, mode });
        self.entries(parent).insert(name.into(), object);
        self.nodes.get_mut(&parent).unwrap().links += u32::from(directory);
    }

    fn drop_link(&mut self, object: u64) {
        let node = self.nodes.get_mut(&object).unwrap();
        node.links -= 1;
        if node.links == 0 || matches!(node.content, Content::Directory(_)) {
            self.nodes.remove(&object);
        }
    }

    fn is_below(&self, mut node: u64, ancestor: u64) -> bool {
        loop {
            if node == ancestor {
                return true;
            }
            if node == self.root {
                return false;
            }
            node = self.nodes[&node].parent;
        }
    }
}

const ENOENT: i32 = 2;
const EEXIST: i32 = 17;
const ENOTDIR: i32 = 20;
const EISDIR: i32 = 21;
const EINVAL: i32 = 22;
const ENOTEMPTY: i32 = 39;

/// Applies `op` to the model; `made` is the object that the file system made, if it did.
fn expect(model: &mut Model, op: &Op, made: Option<u64>) -> Outcome {
    match *op {
        Op::Create { parent, name } => expect_new(model, parent, name, made, Content::File(Vec::new()), 0o644),
        Op::Mkdir { parent, name } => expect_new(model, parent, name, made, Content::Directory(BTreeMap::new()), 0o755),
        Op::Symlink { parent, name, length } => {
            expect_new(model, parent, name, made, Content::Link(vec![b'x'; length]), 0o777)
        }
        Op::Link { file, parent, name } => expect_link(model, file, parent, name),
        Op::Unlink { parent, name } => expect_unlink(model, parent, name),
        Op::Rmdir { parent, name } => expect_rmdir(model, parent, name),
        Op::Rename { parent, name, new_parent, new_name, exchange } => {
            expect_rename(model, (parent, name), (new_parent, new_name), exchange)
        }
        Op::Write { file, offset, length, byte } => {
            let Some(file) = model.file(file) else { return Ok(None) };
            let Content::File(data) = &mut model.nodes.get_mut(&file).unwrap().content else { unreachable!() };
            let end = offset as usize + length;
            data.resize(data.len().max(end), 0);
            data[offset as usize..end].fill(byte);
            Ok(None)
        }
        Op::Truncate { file, size } => {
            let Some(file) = model.file(file) else { return Ok(None) };
            let Content::File(data) = &mut model.nodes.get_mut(&file).unwrap().content else { unreachable!() };
            data.resize(size as usize, 0);
            Ok(None)
        }
        Op::Punch { file, offset, length } => {
            let Some(file) = model.file(file) else { return Ok(None) };
            let Content::File(data) = &mut model.nodes.get_mut(&file).unwrap().content else { unreachable!() };
            let end = data.len().min((offset + length) as usize);
            if (offset as usize) < end {
                data[offset as usize..end].fill(0);
            }
            Ok(None)
        }
        Op::Chmod { any, mode } => {
            let node = model.pick(any, |_| true).unwrap();
            model.nodes.get_mut(&node).unwrap().mode = mode;
            Ok(None)
        }
        Op::Sync | Op::Reopen => Ok(None),
    }
}

fn expect_link(model: &mut Model, file: usize, parent: usize, name: usize) -> Outcome {
    let Some(file) = model.file(file) else { return Ok(None) };
    let parent = model.directory(parent);
    if model.entries(parent).contains_key(NAMES[name]) {
        return Err(EEXIST);
    }
    model.entries(parent).insert(NAMES[name].into(), file);
    model.nodes.get_mut(&file).unwrap().links += 1;
    Ok(None)
}

fn expect_unlink(model: &mut Model, parent: usize, name: usize) -> Outcome {
    let parent = model.directory(parent);
    let object = *model.entries(parent).get(NAMES[name]).ok_or(ENOENT)?;
    if model.is_directory(object) {
        return Err(EISDIR);
    }
    model.entries(parent).remove(NAMES[name]);
    model.drop_link(object);
    Ok(None)
}

fn expect_rmdir(model: &mut Model, parent: usize, name: usize) -> Outcome {
    let parent = model.directory(parent);
    let object = *model.entries(parent).get(NAMES[name]).ok_or(ENOENT)?;
    if !model.is_directory(object) {
        return Err(ENOTDIR);
    }
    if !model.is_empty(object) {
        return Err(ENOTEMPTY);
    }
    model.entries(parent).remove(NAMES[name]);
    model.drop_link(object);
    model.nodes.get_mut(&parent).unwrap().links -= 1;
    Ok(None)
}

fn expect_rename(
    model: &mut Model,
    (parent, name): (usize, usize),
    (new_parent, new_name): (usize, usize),
    exchange: bool,
) -> Outcome {
    let (from, to) = (model.directory(parent), model.directory(new_parent));
    let source = *model.entries(from).get(NAMES[name]).ok_or(ENOENT)?;
    let target = model.entries(to).get(NAMES[new_name]).copied();
    if exchange && target.is_none() {
        return Err(ENOENT);
    }
    if target == Some(source) {
        return Ok(None);
    }
    if model.is_directory(source) && model.is_below(to, source) {
        return Err(EINVAL);
    }
    if let Some(target) = target {
        if exchange {
            if model.is_directory(target) && model.is_below(from, target) {
                return Err(EINVAL);
            }
        } else {
            match (model.is_directory(source), model.is_directory(target)) {
                (true, false) => return Err(ENOTDIR),
                (false, true) => return Err(EISDIR),
                (true, true) if !model.is_empty(target) => return Err(ENOTEMPTY),
                _ => {}
            }
        }
    }
    let (source_dir, target_dir) = (model.is_directory(source), target.is_some_and(|t| model.is_directory(t)));
    model.entries(from).remove(NAMES[name]);
    model.entries(to).insert(NAMES[new_name].into(), source);
    model.nodes.get_mut(&source).unwrap().parent = to;
    model.nodes.get_mut(&from).unwrap().links -= u32::from(source_dir);
    model.nodes.get_mut(&to).unwrap().links += u32::from(source_dir);
    if let Some(target) = target {
        model.nodes.get_mut(&to).unwrap().links -= u32::from(target_dir);
        if exchange {
            model.entries(from).insert(NAMES[name].into(), target);
            model.nodes.get_mut(&target).unwrap().parent = from;
            model.nodes.get_mut(&from).unwrap().links += u32::from(target_dir);
        } else {
            model.drop_link(target);
        }
    }
    Ok(None)
}

fn expect_new(
    model: &mut Model,
    parent: usize,
    name: usize,
    made: Option<u64>,
    content: Content,
    mode: u32,
) -> Outcome {
    let parent = model.directory(parent);
    if model.entries(parent).contains_key(NAMES[name]) {
        return Err(EEXIST);
    }
    if let Some(object) = made {
        model.add(parent, NAMES[name], object, content, mode);
    }
    Ok(made)
}

/// Applies `op` to the file system; objects are chosen by the model.
async fn apply(zpl: &Zpl, model: &Model, op: &Op) -> Outcome {
    let file = NewFile { mode: 0o644, ..NewFile::default() };
    let directory = |index| ObjectId(model.directory(index));
    let made = |attr: platter_zpl::Attr| Some(attr.object.0);
    let result = match *op {
        Op::Create { parent, name } => zpl.create(directory(parent), NAMES[name].as_bytes(), file).await.map(made),
        Op::Mkdir { parent, name } => {
            let new = NewFile { mode: 0o755, ..file };
            zpl.mkdir(directory(parent), NAMES[name].as_bytes(), new).await.map(made)
        }
        Op::Symlink { parent, name, length } => {
            let new = NewFile { mode: 0o777, ..file };
            zpl.symlink(directory(parent), NAMES[name].as_bytes(), &vec![b'x'; length], new).await.map(made)
        }
        Op::Link { file, parent, name } => match model.file(file) {
            Some(file) => zpl.link(ObjectId(file), directory(parent), NAMES[name].as_bytes()).await.map(|_| None),
            None => Ok(None),
        },
        Op::Unlink { parent, name } => zpl.unlink(directory(parent), NAMES[name].as_bytes()).await.map(|()| None),
        Op::Rmdir { parent, name } => zpl.rmdir(directory(parent), NAMES[name].as_bytes()).await.map(|()| None),
        Op::Rename { parent, name, new_parent, new_name, exchange } => {
            let flags = RenameFlags { exchange, ..RenameFlags::default() };
            let (from, to) = (directory(parent), directory(new_parent));
            zpl.rename(from, NAMES[name].as_bytes(), to, NAMES[new_name].as_bytes(), flags).await.map(|()| None)
        }
        Op::Write { file, offset, length, byte } => match model.file(file) {
            Some(file) => zpl.write(ObjectId(file), offset, &vec![byte; length], false).await.map(|written| {
                assert_eq!(written, length);
                None
            }),
            None => Ok(None),
        },
        Op::Truncate { file, size } => match model.file(file) {
            Some(file) => {
                let change = SetAttr { size: Some(size), ..SetAttr::default() };
                zpl.setattr(ObjectId(file), change).await.map(|_| None)
            }
            None => Ok(None),
        },
        Op::Punch { file, offset, length } => match model.file(file) {
            Some(file) => zpl.fallocate(ObjectId(file), Fallocate::PunchHole, offset, length).await.map(|()| None),
            None => Ok(None),
        },
        Op::Chmod { any, mode } => {
            let node = model.pick(any, |_| true).unwrap();
            let change = SetAttr { mode: Some(mode), ..SetAttr::default() };
            zpl.setattr(ObjectId(node), change).await.map(|_| None)
        }
        Op::Sync => zpl.sync().await.map(|()| None),
        Op::Reopen => Ok(None),
    };
    result.map_err(|error| error.errno())
}

async fn compare(zpl: &Zpl, model: &Model) {
    for (&object, node) in &model.nodes {
        let attr = zpl.getattr(ObjectId(object)).await.unwrap();
        assert_eq!((attr.links, attr.mode), (node.links, node.mode), "object {object}");
        match &node.content {
            Content::File(data) => {
                assert_eq!((attr.kind, attr.size), (FileKind::Regular, data.len() as u64));
                assert!(read_all(zpl, ObjectId(object)).await == *data, "contents of {object}");
            }
            Content::Link(target) => {
                assert_eq!((attr.kind, attr.size), (FileKind::Symlink, target.len() as u64));
                assert_eq!(zpl.readlink(ObjectId(object)).await.unwrap(), *target);
            }
            Content::Directory(entries) => {
                assert_eq!((attr.kind, attr.size), (FileKind::Directory, entries.len() as u64 + 2));
                let mut found: BTreeMap<String, u64> = zpl
                    .readdir(ObjectId(object), 0, 1000, false)
                    .await
                    .unwrap()
                    .into_iter()
                    .map(|e| (String::from_utf8(e.name).unwrap(), e.object.0))
                    .collect();
                assert_eq!(found.remove("."), Some(object));
                assert_eq!(found.remove(".."), Some(node.parent));
                assert_eq!(&found, entries);
            }
        }
    }
}

async fn run(history: Vec<Op>) {
    let mut properties = properties();
    properties.record_size = 8 << 10;
    let pool = TestPool::new(properties).await;
    let mut zpl: Arc<Zpl> = pool.mount().await;
    let root = zpl.root().0;
    let directory = Node { content: Content::Directory(BTreeMap::new()), links: 2, parent: root, mode: 0o755 };
    let mut model = Model { nodes: BTreeMap::from([(root, directory)]), root };
    for op in &history {
        let done = apply(&zpl, &model, op).await;
        let expected = expect(&mut model, op, done.ok().flatten());
        assert_eq!(done, expected, "{op:?}");
        if let Op::Reopen = op {
            zpl = pool.reopen(zpl).await;
            compare(&zpl, &model).await;
        }
    }
    compare(&zpl, &model).await;
    let zpl = pool.reopen(zpl).await;
    compare(&zpl, &model).await;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]
    #[test]
    fn every_history_ends_as_in_the_model(history in proptest::collection::vec(op(), 1..80)) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(run(history));
    }
}
