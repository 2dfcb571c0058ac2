//! The data management unit: object sets, their objects (dnodes), the blocks below them, and what is built from plain
//! objects (ZAP, bpobj, bptree).
//!
//! Invariants:
//! - open-context changes carry a [`Tx`] and land in that group's dirty slot; the sync of group N sees exactly what
//!   transactions of N wrote, whatever group N+1 does meanwhile;
//! - blocks are copied on write: a tree on disk is never changed, [`Objset::sync`] builds the next one from it.
#![forbid(unsafe_code)]

mod allocate;
mod begin;
mod blocktree;
pub mod bpobj;
pub mod bptree;
mod cache;
mod changed;
mod contents;
mod core;
mod cost;
mod dirty;
mod dnode;
mod flights;
mod holes;
mod neighbours;
mod new_dnode;
mod number_set_zaps;
mod number_sets;
mod numbers;
mod objset;
mod place;
mod policy;
mod properties;
mod ranges;
mod sync;
mod totals;
pub mod traverse;
mod treesync;
pub mod userused;
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
