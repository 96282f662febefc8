//! Measures the disk by itself: what no server that syncs each write alone can exceed. Knows nothing of
//! servers.

use super::{
    Stage, document, load,
    run::{self, Contender, Run},
};
use crate::figure::Figure;
use std::{
    fs::{File, OpenOptions},
    io::{Seek, SeekFrom, Write},
};

/// More than is overwritten in the time, and a whole number of records.
const RESERVED_RECORDS: usize = 50_000;

pub(crate) fn measure(stage: &Stage) -> Vec<Figure> {
    let record = document::json(12_345);
    let overwrites = || {
        let mut file = create(stage, "overwrites");
        file.write_all(record.repeat(RESERVED_RECORDS).as_bytes()).expect("room on the disk");
        file.sync_all().expect("the disk works");
        file.seek(SeekFrom::Start(0)).expect("a file");
        synced(stage, &file, record.as_bytes())
    };
    let contenders =
        vec![Contender::new("append", || appends(stage)), Contender::new("overwrite", overwrites)];
    run::rates("disk, 300 bytes and fdatasync", "/s", contenders)
}

/// Also run beside durable writes, because a disk is not equally fast all the time.
pub(crate) fn appends(stage: &Stage) -> Run {
    synced(stage, &create(stage, "appends"), document::json(12_345).as_bytes())
}

fn create(stage: &Stage, name: &str) -> File {
    let path = stage.directory("disk").join(name);
    OpenOptions::new().create(true).truncate(true).write(true).open(path).expect("a file")
}

fn synced(stage: &Stage, mut file: &File, record: &[u8]) -> Run {
    load::repeat(stage.slice(), || {
        load::timed(|| {
            file.write_all(record).expect("room on the disk");
            file.sync_data().expect("the disk works");
        })
    })
}
