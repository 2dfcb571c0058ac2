//! The data management unit: object sets, their objects, the blocks below them, and what is built from plain objects
//! (`module/zfs/dmu.c`, `dnode.c`, `dbuf.c`, `zap.c`, `bpobj.c`).
//!
//! # The problem
//! An object is a long array of bytes in blocks that are never changed where they are. Changing one byte makes a new
//! block, and so a new pointer to it in the block above, and so on up to the object set's root. Done for each write
//! this would be slow, and a crash in the middle would leave half a tree.
//!
//! # The idea
//! ```text
//! open context        dnode.write(tx, …)   changes go to the slot of tx's group, in memory
//!                     │ group N+1 is open      │ group N is closed
//! sync of group N     dirty blocks ─► new blocks ─► pointers above ─► dnode ─► meta-dnode ─► root
//! ```
//! A change carries a [`Tx`], which says its group. Each object keeps, above the tree on disk, what each unsynced group
//! changed of it ([`Dnode`]); a reader sees all of it, the sync of group N exactly what N's transactions wrote. So a
//! group is written while the next one goes on changing the same objects, and no writer waits for the devices.
//!
//! Before a change begins, the most space that it can take on its way to disk is promised to it (`cost`): a group that
//! was let in always fits.
//!
//! # Invariants
//! - Open-context changes land in their own group's slot; the sync of group N sees exactly what transactions of N
//!   wrote, whatever group N+1 does meanwhile.
//! - Blocks are copied on write: a tree on disk is never changed, [`Objset::sync`] builds the next one from it.
//! - There is one [`Dnode`] for each object number at a time.
//!
//! # Where to start
//! `objset` is a set of objects and `dnode` one of them; `read` finds its blocks; `write` and `dirty` are open context,
//! `sync` and `treesync` the way to disk; [`zap`], [`bpobj`] and [`bptree`] are structures in objects, [`traverse`]
//! walks everything from a root.
#![forbid(unsafe_code)]

mod allocate;
mod begin;
mod blocktree;
pub mod bpobj;
pub mod bptree;
pub mod bytes;
mod cache;
mod changed;
pub mod changes;
mod contents;
mod core;
mod cost;
mod dirty;
mod dnode;
mod holes;
mod neighbours;
mod new_dnode;
mod number_set_zaps;
mod number_sets;
mod numbers;
mod objset;
mod place;
mod policy;
mod prefetch;
mod properties;
mod ranges;
mod read;
mod sync;
mod totals;
pub mod traverse;
mod traverse_ahead;
mod treesync;
pub mod userused;
mod visitor;
mod write;
pub mod zap;
mod zap_entries;

pub use crate::core::Dnode;
pub use dnode::DnodeInfo;
pub use new_dnode::NewDnode;
pub use objset::Objset;
pub use platter_zio::{Bookmark, Result, Tx, TxgGate, ZioError};
pub use properties::{Format, ObjsetParams, RedundantMetadata, WriteProperties};
pub use totals::{Totals, UserAccounting};
