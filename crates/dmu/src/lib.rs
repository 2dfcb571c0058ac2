//! The data management unit: object sets, their objects (dnodes), the blocks below them, and what is built from plain
//! objects (ZAP, bpobj, bptree).
//!
//! Invariants:
//! - open-context changes carry a [`Tx`] and land in that group's dirty slot; the sync of group N sees exactly what
//!   transactions of N wrote, whatever group N+1 does meanwhile;
//! - blocks are copied on write: a tree on disk is never changed, [`Objset::sync`] builds the next one from it.
#![forbid(unsafe_code)]

mod blocktree;
pub mod bpobj;
pub mod bptree;
mod cache;
mod core;
mod cost;
mod dirty;
pub mod dnode;
mod flights;
mod holes;
mod neighbours;
mod number_sets;
mod numbers;
pub mod objset;
mod policy;
mod ranges;
mod sync;
pub mod traverse;
mod treesync;
pub mod userused;
mod write;
pub mod zap;

pub use dnode::{Dnode, DnodeInfo, NewDnode};
pub use objset::{Format, Objset, ObjsetParams, RedundantMetadata, WriteProperties};
pub use platter_zio::{Bookmark, Result, Tx, TxgGate, ZioError};
pub use userused::{Totals, UserAccounting};
