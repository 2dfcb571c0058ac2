//! Everything asynchronous can be spawned: front ends run it on a multi-threaded runtime.

use std::sync::Arc;

use platter_buffer::Buf;
use platter_dmu::{Dnode, NewDnode, Objset, ObjsetParams, Tx};
use platter_ondisk::{BlkPtr, ObjectId, Txg};
use platter_zio::Priority;

fn send<T: Send>(_: &T) {}

#[allow(dead_code)]
fn futures_are_send(os: Arc<Objset>, dnode: Arc<Dnode>, tx: Tx, params: ObjsetParams, new: NewDnode, out: &mut [u8]) {
    send(&Objset::open(params, BlkPtr::HOLE));
    send(&os.sync(Txg(1), 1));
    send(&os.dnode(ObjectId(1)));
    send(&os.allocate(&tx, new.clone()));
    send(&os.claim(&tx, ObjectId(1), new));
    send(&os.free_object(&tx, ObjectId(1)));
    send(&os.next_object(ObjectId(1)));
    send(&os.begin());
    send(&dnode.read(0, out));
    send(&dnode.read_block(0, Priority::SyncRead));
    send(&dnode.write(&tx, 0, b""));
    send(&dnode.write_block(&tx, 0, Buf::empty()));
    send(&dnode.free_range(&tx, 0, 0));
    send(&dnode.seek(0, true));
    send(&dnode.set_block_size(&tx, 512));
    send(&dnode.spill());
}

#[allow(dead_code)]
fn a_walk_is_send(store: Arc<dyn platter_zio::BlockStore>, visitor: &dyn platter_dmu::traverse::Visitor) {
    send(&platter_dmu::traverse::visit(&store, ObjectId(0), &BlkPtr::HOLE, None, visitor));
}
