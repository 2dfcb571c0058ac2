//! How long a disk with turning platters takes.
//!
//! Invariants:
//! - a sector passes under its head once in a rotation, at an angle that follows from its place; the platters' angle
//!   follows from virtual time alone, as does everything else here: there is no chance in it;
//! - all numbers are those of a data sheet: there is no table of what throughput should come out.

use std::collections::VecDeque;

use crate::clock::{Nanos, SECOND};

/// The data sheet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spinning {
    /// Rotations per minute.
    pub rpm: u64,
    /// Sustained bytes per second at the outer edge, changes of track included.
    pub outer_rate: u64,
    /// The same at the inner edge.
    pub inner_rate: u64,
    /// Heads: tracks that need no seek between them.
    pub heads: u64,
    /// Seek to the neighbouring cylinder.
    pub seek_one: Nanos,
    /// Average seek, that is: over a third of all cylinders.
    pub seek_average: Nanos,
    /// Seek over all cylinders.
    pub seek_full: Nanos,
    /// Change to another head. Each track begins a little later than that after the one before (`SKEW_MARGIN`), and
    /// the first of a cylinder a little later than a seek to it, so that a transfer that goes on there misses no
    /// rotation.
    pub head_switch: Nanos,
    /// Whether the parts of a command that lie on different tracks are transferred in the order in which they pass, and
    /// whole tracks from wherever the head arrives.
    pub access_on_arrival: bool,
    /// Bytes that the drive reads ahead of sequential readers.
    pub look_ahead: u64,
}

/// How much later than a head switch a track begins.
pub const SKEW_MARGIN: Nanos = 100_000;

/// Tracks of one command that the drive compares.
const COMPARED_MAX: usize = 32;

/// Zones between outer and inner edge; within one, all tracks hold the same.
const ZONES: u64 = 16;

#[derive(Clone, Copy, Debug)]
struct Zone {
    begin: u64,
    first_track: u64,
    track_bytes: u64,
}

/// Where something begins on the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MediumPlace {
    track: u64,
    /// Nanoseconds after the index mark at which it passes under its head.
    angle: Nanos,
    /// Bytes from here to the end of the track.
    left: u64,
    track_bytes: u64,
}

/// The moving parts.
#[derive(Debug)]
pub struct Platters {
    sheet: Spinning,
    period: Nanos,
    zones: Vec<Zone>,
    cylinders: u64,
    /// Sector size within the drive, in bytes.
    physical_block: u64,
    track: u64,
    /// Where the last read ended, and when: what follows is being read ahead.
    stream: Option<(u64, Nanos)>,
}

impl Platters {
    /// Those of a drive of `size` bytes, with sectors of `physical_block` bytes. The head stands at the beginning.
    pub fn new(sheet: Spinning, size: u64, physical_block: u64) -> Self {
        let period = 60 * SECOND / sheet.rpm;
        let rate = |zone: u64| {
            let (outer, inner) = (sheet.outer_rate, sheet.inner_rate.min(sheet.outer_rate));
            outer - (outer - inner) * zone / (ZONES - 1)
        };
        // What passes in one rotation and the change to the next track, in whole sectors.
        let skew = sheet.head_switch + SKEW_MARGIN + sheet.seek_one.saturating_sub(sheet.head_switch) / sheet.heads;
        let track_bytes = |zone| {
            let bytes = u128::from(rate(zone)) * u128::from(period + skew) / u128::from(SECOND);
            ((bytes as u64) / physical_block).max(1) * physical_block
        };
        let round: u64 = (0..ZONES).map(track_bytes).sum();
        let tracks = (size / round).max(1);
        let mut zones = Vec::new();
        let mut begin = 0;
        for zone in 0..ZONES {
            zones.push(Zone { begin, first_track: zone * tracks, track_bytes: track_bytes(zone) });
            begin += tracks * track_bytes(zone);
        }
        // Rounding leaves a little at the inner edge: the last zone has some tracks more.
        let all = (ZONES * tracks).max(1) + size.saturating_sub(begin) / track_bytes(ZONES - 1);
        let cylinders = all.div_ceil(sheet.heads).max(1);
        assert!(zones.is_sorted_by(|one, next| one.begin < next.begin && one.first_track < next.first_track));
        assert!(zones.iter().all(|zone| zone.track_bytes.is_multiple_of(physical_block)), "tracks are whole sectors");
        Self { sheet, period, zones, cylinders, physical_block, track: 0, stream: None }
    }

    fn place(&self, offset: u64) -> MediumPlace {
        let index = self.zones.partition_point(|zone| zone.begin <= offset) - 1;
        let zone = self.zones[index];
        let track = zone.first_track + (offset - zone.begin) / zone.track_bytes;
        let within = (offset - zone.begin) % zone.track_bytes;
        let left = match self.zones.get(index + 1) {
            Some(next) => (zone.track_bytes - within).min(next.begin - offset),
            None => zone.track_bytes - within,
        };
        let cylinder_skew = track / self.sheet.heads * self.sheet.seek_one.saturating_sub(self.sheet.head_switch);
        let skew = track * (self.sheet.head_switch + SKEW_MARGIN) + cylinder_skew;
        let angle = (self.passing(within, zone.track_bytes) + skew) % self.period;
        MediumPlace { track, angle, left, track_bytes: zone.track_bytes }
    }

    /// How long `bytes` of a track need to pass under the head.
    fn passing(&self, bytes: u64, track_bytes: u64) -> Nanos {
        (u128::from(bytes) * u128::from(self.period) / u128::from(track_bytes)) as Nanos
    }

    fn seek(&self, from: u64, to: u64) -> Nanos {
        if from == to {
            return 0;
        }
        let distance = (from / self.sheet.heads).abs_diff(to / self.sheet.heads);
        if distance == 0 {
            return self.sheet.head_switch;
        }
        // Accelerating and braking: the root of the distance up to a third of all cylinders, then a steady speed.
        let (one, average, full) = (self.sheet.seek_one, self.sheet.seek_average, self.sheet.seek_full);
        let third = (self.cylinders / 3).max(2);
        let time = if distance <= third {
            let part = ((distance - 1) as f64 / (third - 1) as f64).sqrt();
            one as f64 + (average.saturating_sub(one)) as f64 * part
        } else {
            let part = (distance - third) as f64 / (self.cylinders.max(third + 1) - third) as f64;
            average as f64 + (full.saturating_sub(average)) as f64 * part
        };
        (time as Nanos).max(self.sheet.head_switch)
    }

    /// How long a head that stands on `track` at `now` needs to the beginning of `bytes` at `place`, and through them.
    fn piece(&self, now: Nanos, track: u64, place: MediumPlace, bytes: u64) -> (Nanos, Nanos) {
        let seek = self.seek(track, place.track);
        let passing = self.passing(bytes, place.track_bytes);
        if self.sheet.access_on_arrival && bytes == place.track_bytes {
            return (seek, passing);
        }
        let wait = (place.angle + self.period - (now + seek) % self.period) % self.period;
        (seek + wait, passing)
    }

    /// How long until the head stands before `offset`: what the drive's scheduler compares.
    pub fn positioning(&self, now: Nanos, offset: u64) -> Nanos {
        let place = self.place(offset);
        let arrival = now + self.seek(self.track, place.track);
        let wait = (place.angle + self.period - arrival % self.period) % self.period;
        arrival + wait - now
    }

    /// When `length` bytes at `offset` have passed, and over which track the head stands then.
    fn run(&self, mut now: Nanos, mut offset: u64, mut length: u64) -> (Nanos, u64) {
        let mut track = self.track;
        let mut pieces = VecDeque::new();
        loop {
            while length > 0 && pieces.len() < COMPARED_MAX {
                let place = self.place(offset);
                let bytes = place.left.min(length);
                assert!(bytes > 0 && place.angle < self.period, "a transfer comes to its end");
                pieces.push_back((place, bytes));
                (offset, length) = (offset + bytes, length - bytes);
            }
            let compared = if self.sheet.access_on_arrival { pieces.len() } else { pieces.len().min(1) };
            let times = |index: usize| {
                let (place, bytes) = pieces[index];
                self.piece(now, track, place, bytes)
            };
            let Some(first) = (0..compared).min_by_key(|&index| (times(index).0, index)) else { return (now, track) };
            let (before, passing) = times(first);
            now += before + passing;
            track = pieces.remove(first).expect("just compared").0.track;
        }
    }

    /// Reads; when the last byte has passed.
    pub fn read(&mut self, now: Nanos, offset: u64, length: u64) -> Nanos {
        let ahead = self.sheet.look_ahead * SECOND / self.sheet.outer_rate.max(1);
        let begin = match self.stream {
            Some((end, since)) if end == offset && ahead > 0 => since.max(now.saturating_sub(ahead)).min(now),
            _ => now,
        };
        let (done, track) = self.run(begin, offset, length);
        self.track = track;
        self.stream = Some((offset + length, done));
        done.max(now)
    }

    /// Writes; when the last byte is on the medium. What does not fill its first or last sector must be read before.
    pub fn write(&mut self, now: Nanos, offset: u64, length: u64) -> Nanos {
        let whole = offset.is_multiple_of(self.physical_block) && length.is_multiple_of(self.physical_block);
        let mut begin = now;
        if !whole {
            let first = offset / self.physical_block * self.physical_block;
            let last = (offset + length).next_multiple_of(self.physical_block);
            (begin, self.track) = self.run(now, first, last - first);
        }
        let (done, track) = self.run(begin, offset, length);
        self.track = track;
        self.stream = None;
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::MILLISECOND;
    use crate::disk::Parameters;

    fn platters(physical: u64) -> Platters {
        let sheet = Parameters::published_curve().spinning().expect("it turns");
        Platters::new(sheet, 500_000_000_000, physical)
    }

    #[test]
    fn every_offset_has_one_place_and_tracks_follow_each_other() {
        let disk = platters(512);
        let (mut offset, mut track) = (0, 0);
        for _ in 0..200_000 {
            let place = disk.place(offset);
            assert_eq!(place.track, track);
            offset += place.left;
            track += 1;
        }
        let zones: Vec<u64> = disk.zones.iter().map(|zone| zone.track_bytes).collect();
        assert!(zones.is_sorted_by(|a, b| a >= b));
    }

    #[test]
    fn a_long_transfer_runs_at_the_sustained_rate_and_slower_further_in() {
        let mut disk = platters(512);
        let bytes = 600_000_000;
        let outer = disk.write(0, 0, bytes);
        let rate = bytes * 1000 / (outer / MILLISECOND);
        assert!((60_000_000..=64_000_000).contains(&rate), "{rate}");
        let begin = disk.write(outer, 490_000_000_000, 512);
        let inner = disk.write(begin, 490_000_000_512, bytes) - begin;
        assert!(inner * 10 > outer * 15, "{inner} against {outer}");
    }

    #[test]
    fn farther_seeks_take_longer_and_the_average_is_the_sheets() {
        let disk = platters(512);
        let heads = disk.sheet.heads;
        let times: Vec<Nanos> =
            [0, 1, 100, disk.cylinders / 3, disk.cylinders - 1].map(|c| disk.seek(0, c * heads)).to_vec();
        assert!(times.is_sorted(), "{times:?}");
        assert_eq!(times[1], disk.sheet.seek_one);
        assert_eq!(times[3], disk.sheet.seek_average);
    }

    #[test]
    fn a_partial_sector_costs_one_more_rotation() {
        let (mut emulated, mut native) = (platters(4096), platters(512));
        let partial = emulated.write(0, 40_960, 512);
        let whole = native.write(0, 40_960, 512);
        let period = native.period;
        assert!((partial - whole).abs_diff(period) < period / 10, "{partial} {whole}");
    }

    #[test]
    fn a_sequential_reader_loses_no_rotation_to_its_own_pauses() {
        let mut disk = platters(512);
        let mut now = disk.read(0, 0, 65_536);
        let begin = now;
        for index in 1..=1000 {
            now = disk.read(now + 200_000, index * 65_536, 65_536);
        }
        let rate = 65_536_000 * 1000 / ((now - begin) / MILLISECOND);
        assert!(rate > 45_000_000, "{rate}");
    }
}
