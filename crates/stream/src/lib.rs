//! Streams of `zfs send`, as `zfs receive` takes them in (`include/sys/zfs_ioctl.h`, `module/zfs/dmu_send.c`,
//! `module/zfs/dmu_recv.c`): records of 312 bytes, some with a payload, under one checksum that runs through all.
//!
//! ```text
//! BEGIN (list) | OBJECT (bonus) | FREE | WRITE (block) | WRITE … | FREEOBJECTS | … | END
//!        └──────────────── each record holds the checksum of all before it ────────┘
//! ```
//! Nothing here reads or writes: a [`Parser`] is handed the bytes of one record and says how long its payload is; a
//! [`Framer`] gives the bytes of a record. A stream comes from anybody: what a [`Parser`] returns was checked (sizes,
//! types, order, checksum), takes memory up to one block, and its numbers can be computed with.
//!
//! # Where to start
//! `record` has the kinds of records, `decode` what is checked of them, `parser` the order of a stream; `token` is
//! where a broken receive goes on; `contents` which files there are, `attributes` what they are, `one_file` where each
//! has its blocks.
#![forbid(unsafe_code)]

pub mod attributes;
mod begin;
pub mod contents;
mod decode;
mod encode;
mod error;
mod features;
mod fields;
mod framer;
pub mod one_file;
mod parser;
mod record;
mod resume_point;
mod running_sum;
mod token;

pub use begin::{Begin, HeaderKind, begin_flags};
pub use error::StreamError;
pub use features::StreamFeatures;
pub use framer::Framer;
pub use parser::{Header, Parser};
pub use platter_ondisk::znode::device_for_users;
pub use platter_ondisk::{ObjectId, ObjectType};
pub use record::{
    Embedded, Free, FreeObjects, OBJECT_END, ObjectRecord, RECORD_SIZE, Record, Spill, Write, object_flags, spill_flags,
};
pub use resume_point::ResumePoint;
pub use running_sum::RunningSum;
pub use token::ResumeToken;
