//! What clients were told about one key, and whether one client alone could have been told the same. Knows
//! nothing of shards.

/// A document: what it says, and the position of the write that said it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Doc {
    pub(super) value: u32,
    pub(super) position: u8,
}

/// What a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Op {
    Insert,
    Replace,
    Update,
    Delete,
    Select,
    /// Takes a lease on the key.
    Lock,
    /// Gives it back, or lets it expire.
    Unlock,
    /// Replaces with the token of the client's lease, which may be over.
    Put,
}

/// What it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Said {
    /// The document that was read, written or deleted; nothing if there was none.
    Doc(Option<Doc>),
    Duplicate,
    /// Somebody else has a lease.
    Locked,
    /// The token is not that of the lease.
    Stale,
    Granted(u8),
    Released,
}

/// One operation of a client, from the first time that it reaches a node to its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Record {
    pub(super) op: Op,
    /// Makes what it writes different from what others write.
    pub(super) tag: u8,
    pub(super) token: Option<u8>,
    pub(super) begun: bool,
    /// Which operations were answered before this one began.
    pub(super) before: u16,
    /// None: no answer, and nobody knows what became of it.
    pub(super) said: Option<Said>,
}

/// The key as one client alone would see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Truth {
    pub(super) doc: Option<Doc>,
    pub(super) lease: Option<u8>,
    pub(super) token_last: u8,
    pub(super) position_last: u8,
}

/// The position of a write that was never answered, and so never told.
const UNTOLD: u8 = u8::MAX;

/// The value that `op` leaves, if it may be done at all; the value is the same when it only reads.
pub(super) fn written(op: Op, tag: u8, value: Option<u32>) -> Result<Option<u32>, Said> {
    let tag = u32::from(tag) + 2;
    match op {
        Op::Insert if value.is_some() => Err(Said::Duplicate),
        Op::Insert | Op::Replace | Op::Put => Ok(Some(tag)),
        Op::Update => Ok(value.map(|value| value * 100 + tag)),
        Op::Delete => Ok(None),
        Op::Select | Op::Lock | Op::Unlock => Ok(value),
    }
}

/// Whether a lease lets an operation through.
pub(super) fn admitted(op: Op, token: Option<u8>, lease: Option<u8>) -> Result<(), Said> {
    match op {
        Op::Select => Ok(()),
        Op::Lock => lease.map_or(Ok(()), |_| Err(Said::Locked)),
        Op::Unlock | Op::Put if lease.is_none() || token != lease => Err(Said::Stale),
        Op::Unlock | Op::Put => Ok(()),
        _ if lease.is_some() => Err(Said::Locked),
        _ => Ok(()),
    }
}

impl Record {
    pub(super) fn new(op: Op, tag: u8) -> Record {
        Record { op, tag, token: None, begun: false, before: 0, said: None }
    }
}

/// Whether there is an order of `records` that agrees with what was told, and with which of them were over
/// before others began.
pub(super) fn is_linearizable(records: &[Record], start: Truth) -> bool {
    let begun = mask(records, |record| record.begun);
    let answered = mask(records, |record| record.said.is_some());
    search(records, begun, answered, 0, start)
}

fn mask(records: &[Record], which: impl Fn(&Record) -> bool) -> u16 {
    let bits = records.iter().enumerate().filter(|(_, record)| which(record));
    bits.fold(0, |mask, (index, _)| mask | 1 << index)
}

fn search(records: &[Record], begun: u16, answered: u16, placed: u16, truth: Truth) -> bool {
    if placed & answered == answered {
        return true;
    }
    let candidates = (0..records.len()).filter(|index| begun & !placed & (1 << index) != 0);
    for index in candidates {
        let record = &records[index];
        if record.before & !placed != 0 {
            continue;
        }
        if let Some(truth) = truth.after(record)
            && search(records, begun, answered, placed | 1 << index, truth)
        {
            return true;
        }
    }
    false
}

impl Truth {
    /// The key after `record`, if what it was told is right here.
    fn after(mut self, record: &Record) -> Option<Truth> {
        if let Err(refused) = admitted(record.op, record.token, self.lease) {
            return record.said.is_none_or(|said| said == refused).then_some(self);
        }
        match (record.op, record.said) {
            (Op::Lock, Some(Said::Granted(token))) if token > self.token_last => {
                (self.lease, self.token_last) = (Some(token), token);
                Some(self)
            }
            (Op::Lock, None) => Some(Truth { lease: Some(UNTOLD), ..self }),
            (Op::Unlock, None | Some(Said::Released)) => Some(Truth { lease: None, ..self }),
            (Op::Lock | Op::Unlock, _) => None,
            _ => self.after_document(record),
        }
    }

    fn after_document(mut self, record: &Record) -> Option<Truth> {
        let value = match written(record.op, record.tag, self.doc.map(|doc| doc.value)) {
            Ok(value) => value,
            Err(refused) => return record.said.is_none_or(|said| said == refused).then_some(self),
        };
        match (record.op, record.said) {
            (_, Some(Said::Doc(said))) => self.told(record.op, value, said),
            (_, Some(_)) => None,
            (_, None) => {
                let changed = record.op != Op::Select;
                if changed {
                    self.doc = value.map(|value| Doc { value, position: UNTOLD });
                }
                Some(self)
            }
        }
    }

    fn told(mut self, op: Op, value: Option<u32>, said: Option<Doc>) -> Option<Truth> {
        let same = |truth: Option<Doc>| match (truth, said) {
            (Some(truth), Some(said)) => {
                truth.value == said.value && (truth.position == UNTOLD || truth.position == said.position)
            }
            (None, None) => true,
            _ => false,
        };
        match (op, said) {
            (Op::Select | Op::Delete, _) if !same(self.doc) => return None,
            (Op::Select, _) => {}
            (Op::Delete, _) => self.doc = None,
            (_, Some(doc)) if value == Some(doc.value) && doc.position > self.position_last => {
                (self.doc, self.position_last) = (Some(doc), doc.position);
            }
            (Op::Update, None) if value.is_none() => {}
            _ => return None,
        }
        Some(self)
    }
}
