//! How far a scan got, and how that is written down.

use platter_ondisk::ObjectId;
use platter_ondisk::dsl::ScanPhys;
use platter_zio::Bookmark;

/// The name of [`Place`] in the pool directory.
pub const PLACE: &str = "org.platter:scan_progress";

/// How far the walk of a scan got: object sets go by turn, then by number, the MOS first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScanPlace {
    /// All object sets of earlier turns are done.
    pub turn: u64,
    /// And so are those of this turn with lower numbers.
    pub objset: ObjectId,
    /// The last block seen in it.
    pub last: Option<Bookmark>,
}

/// Words of a place; what follows them is what the scan may prove.
pub const PLACE_WORDS: usize = 8;

impl ScanPlace {
    /// As written: which scan it is about, then the place.
    pub fn encode(self, phys: &ScanPhys) -> Vec<u64> {
        let last = self.last.unwrap_or_default();
        let level = i64::from(last.level) as u64;
        vec![
            phys.start_time,
            phys.examined,
            self.turn,
            self.objset.0,
            self.last.is_some().into(),
            last.object.0,
            level,
            last.blkid,
        ]
    }

    /// The place in the scan `phys`, or its beginning when what was written is about another one (or another program
    /// went on with it).
    pub fn decode(words: &[u64], phys: &ScanPhys) -> Self {
        let words = words.get(..PLACE_WORDS).unwrap_or_default();
        let &[start_time, examined, turn, objset, seen, object, level, blkid] = words else { return Self::default() };
        let Ok(level) = i8::try_from(level as i64) else { return Self::default() };
        if (start_time, examined) != (phys.start_time, phys.examined) {
            return Self::default();
        }
        let objset = ObjectId(objset);
        let last = Bookmark { objset, object: ObjectId(object), level, blkid };
        Self { turn, objset, last: (seen != 0).then_some(last) }
    }
}
