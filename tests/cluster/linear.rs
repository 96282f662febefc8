//! Whether what clients saw of one key can be explained by one document that does one thing after the other. Knows
//! nothing of servers.
//!
//! The search is that of Wing and Gong with Lowe's memory of what was tried: an operation can come next if no
//! other one was over before it began; if nothing can come next, the last choice was wrong. An operation without
//! an answer may have been done at any time after it began, or never.

use crate::random::Random;
use std::{
    collections::HashSet,
    fmt::{self, Write},
};

/// So many situations are looked at before the search is given up; a history of few unknowns needs few.
const SEEN_LEN_MAX: usize = 3_000_000;
/// How many operations around the one that cannot be explained are shown.
const SHOWN_LEN_MAX: usize = 30;

/// What is done to a document that holds one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    /// Only if it is not there.
    Insert(u64),
    /// There or not.
    Replace(u64),
    /// Only if it is there.
    Update(u64),
    /// Only if nothing was done to it since this position.
    Swap(u64, u64),
    /// Adds to what it holds, if it is there; says what that makes.
    Add(u64),
    Delete,
    /// Brings back what was deleted.
    Restore,
    Get,
    /// Sees also what is deleted.
    Look,
}

/// What was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Answer {
    Done,
    Exists,
    Deleted,
    /// It was never there.
    Missing,
    NotDeleted,
    /// Something was done to it since.
    Changed,
    /// What it holds; none if it is not there.
    Holds(Option<u64>),
    Is(State),
}

/// Something a client did, and what it saw of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Operation {
    pub(crate) client: usize,
    pub(crate) action: Action,
    /// When it was asked for, on a clock that all clients share.
    pub(crate) called: u64,
    /// What came of it, and when; none if that is not known.
    pub(crate) answered: Option<(u64, Answer)>,
    /// The position it was done at, or that of what it read, if that was said.
    pub(crate) position: Option<u64>,
}

/// What there is of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum State {
    Unborn,
    Live(u64),
    Gone(u64),
}

/// The same, and the position of what was done to it last, if that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Content {
    state: State,
    position: Option<u64>,
}

impl Action {
    /// What becomes of a document, and what is answered. It is the same one since a position if `is_same` says so.
    fn apply(self, state: State, is_same: impl Fn(u64) -> bool) -> (State, Answer) {
        use State::{Gone, Live, Unborn};
        match (self, state) {
            (Action::Look, _) => (state, Answer::Is(state)),
            (Action::Get, Live(held)) => (state, Answer::Holds(Some(held))),
            (Action::Get | Action::Add(_), Unborn | Gone(_)) => (state, Answer::Holds(None)),
            (Action::Add(more), Live(held)) => (Live(held + more), Answer::Holds(Some(held + more))),
            (Action::Insert(value) | Action::Replace(value), Unborn | Gone(_))
            | (Action::Replace(value) | Action::Update(value), Live(_)) => (Live(value), Answer::Done),
            (Action::Insert(_), Live(_)) => (state, Answer::Exists),
            (Action::Swap(since, to), Live(_)) if is_same(since) => (Live(to), Answer::Done),
            (Action::Swap(..), _) => (state, Answer::Changed),
            (Action::Delete, Live(held)) => (Gone(held), Answer::Done),
            (Action::Restore, Gone(held)) => (Live(held), Answer::Done),
            (Action::Restore, Live(_)) => (state, Answer::NotDeleted),
            (Action::Update(_) | Action::Delete | Action::Restore, Unborn) => (state, Answer::Missing),
            (_, Gone(_)) => (state, Answer::Deleted),
        }
    }
}

impl Operation {
    /// What the document is afterwards; none if the answer would have been another one.
    fn explains(&self, before: Content) -> Option<Content> {
        let given = self.answered.map(|(_, given)| given);
        // Where nobody knows the position, it is what the answer says it is.
        let is_same = |since| before.position.map_or(given == Some(Answer::Done), |at| at == since);
        let (state, answer) = self.action.apply(before.state, is_same);
        if given.is_some_and(|given| given != answer) {
            return None;
        }
        let (is_done, known) = (state != before.state || answer == Answer::Done, before.position);
        let fits = match (self.position, known) {
            (Some(position), Some(known)) if is_done => position > known,
            (Some(position), Some(known)) => position == known,
            _ => true,
        };
        let position = if is_done { self.position } else { known.or(self.position) };
        fits.then_some(Content { state, position })
    }

    /// Whether the answer says that everything was left as it was.
    fn changed_nothing(&self) -> bool {
        let is_add = matches!(self.action, Action::Add(_));
        self.answered.is_some_and(|(_, answer)| match answer {
            Answer::Done => false,
            Answer::Holds(Some(_)) => !is_add,
            _ => true,
        })
    }
}

/// Whether a history can be explained.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It can.
    Linearizable,
    /// It cannot; these are the operations around which it fails.
    Impossible(String),
    /// That would take too long to find out.
    Undecided,
}

/// Whether a history of one key can be explained, if it begins with `start`.
pub(crate) fn check(start: State, history: &[Operation]) -> Verdict {
    Search::new(Content { state: start, position: Some(0) }, history).run()
}

/// The beginning or the end of an operation with an answer, in the order of time.
#[derive(Debug, Clone, Copy)]
struct Edge {
    operation: usize,
    is_call: bool,
}

/// What may come next: an operation with an answer, by the place of its call, or one without, by its place among those.
#[derive(Debug, Clone, Copy)]
enum Candidate {
    Answered(usize),
    Unknown(usize),
}

/// A candidate that was chosen, and what the document held before and after it.
#[derive(Debug, Clone, Copy)]
struct Choice {
    candidate: Candidate,
    before: Content,
    after: Content,
}

/// The edges of the operations that are still to be explained are a doubly linked list; the first place is its head. An
/// operation without an answer is tried only where none with one fits, so those that need not have happened cost nothing.
struct Search<'a> {
    history: &'a [Operation],
    edges: Vec<Edge>,
    next: Vec<usize>,
    previous: Vec<usize>,
    /// By operation, the place of its end.
    ends: Vec<Option<usize>>,
    /// The operations without an answer, in the order in which they were called.
    unknown: Vec<usize>,
    content: Content,
    done: Explained,
    chosen: Vec<Choice>,
    seen: HashSet<(u128, Content)>,
    /// The most that could be explained.
    best: Explained,
}

/// After the last place.
const END: usize = 0;

impl<'a> Search<'a> {
    fn new(start: Content, history: &'a [Operation]) -> Search<'a> {
        let (known, mut unknown): (Vec<usize>, Vec<usize>) =
            (0..history.len()).partition(|operation| history[*operation].answered.is_some());
        unknown.sort_by_key(|operation| history[*operation].called);
        let mut edges = vec![Edge { operation: usize::MAX, is_call: false }];
        edges.extend(
            known.into_iter().flat_map(|operation| [true, false].map(|is_call| Edge { operation, is_call })),
        );
        // What begins in the moment something ends may have come before it.
        edges[1..].sort_by_key(|edge| (edge.at(history), !edge.is_call));
        let len = edges.len();
        let mut ends = vec![None; history.len()];
        for (place, edge) in edges.iter().enumerate().skip(1).filter(|(_, edge)| !edge.is_call) {
            ends[edge.operation] = Some(place);
        }
        Search {
            history,
            edges,
            next: (1..=len).map(|place| place % len).collect(),
            previous: (0..len).map(|place| (place + len - 1) % len).collect(),
            ends,
            unknown,
            content: start,
            done: Explained::none(history.len()),
            chosen: Vec::new(),
            seen: HashSet::new(),
            best: Explained::none(history.len()),
        }
    }

    fn run(mut self) -> Verdict {
        // All ends are passed when everything that has one is explained.
        let mut candidate = self.first();
        while self.next[END] != END {
            candidate = match candidate {
                Some(candidate) if self.choose(candidate) => self.first(),
                Some(candidate) => self.after(candidate),
                None => match self.go_back() {
                    Some(refused) => self.after(refused),
                    None => return Verdict::Impossible(self.story()),
                },
            };
            if self.seen.len() >= SEEN_LEN_MAX {
                return Verdict::Undecided;
            }
        }
        Verdict::Linearizable
    }

    fn first(&self) -> Option<Candidate> {
        // The first edge is a call: no end comes before its own.
        Some(Candidate::Answered(self.next[END]))
    }

    /// What is tried when a candidate was in vain: later calls up to the first end, then operations without an answer.
    fn after(&self, candidate: Candidate) -> Option<Candidate> {
        let unknown = match candidate {
            Candidate::Answered(place) if self.edges[self.next[place]].is_call => {
                return Some(Candidate::Answered(self.next[place]));
            }
            Candidate::Answered(_) => 0,
            Candidate::Unknown(place) => place + 1,
        };
        let called = self.history[*self.unknown.get(unknown)?].called;
        (called <= self.first_end()).then_some(Candidate::Unknown(unknown))
    }

    /// What is to come next must have been called by then.
    fn first_end(&self) -> u64 {
        let mut place = self.next[END];
        while self.edges[place].is_call {
            place = self.next[place];
        }
        self.edges[place].at(self.history)
    }

    fn operation(&self, candidate: Candidate) -> usize {
        match candidate {
            Candidate::Answered(place) => self.edges[place].operation,
            Candidate::Unknown(place) => self.unknown[place],
        }
    }

    /// Lets an operation come next, if its answer allows that and it was not tried in vain.
    fn choose(&mut self, candidate: Candidate) -> bool {
        let (operation, before) = (self.operation(candidate), self.content);
        let Some(after) = self.history[operation].explains(before) else { return false };
        if let Candidate::Unknown(place) = candidate
            && (after == before || !self.is_worth_trying(place))
        {
            return false;
        }
        if !self.seen.insert((self.done.mark ^ mark(operation), after)) {
            return false;
        }
        self.done.insert(operation);
        if self.done.len > self.best.len {
            self.best = self.done.clone();
        }
        self.chosen.push(Choice { candidate, before, after });
        self.content = after;
        if let Candidate::Answered(place) = candidate {
            self.unlink(place);
            self.ends[operation].into_iter().for_each(|end| self.unlink(end));
        }
        true
    }

    /// Of equal operations without an answer, the one that was called first can stand for any.
    fn is_worth_trying(&self, place: usize) -> bool {
        let operation = self.unknown[place];
        let is_open = !self.done.contains(operation);
        let is_same = |earlier: &&usize| self.history[**earlier].action == self.history[operation].action;
        let mut same = self.unknown[..place].iter().filter(is_same);
        is_open && same.all(|earlier| self.done.contains(*earlier))
    }

    /// Takes back the last choice that can have been wrong, and those after it; gives its candidate. What never changes
    /// anything can come as soon as it fits.
    fn go_back(&mut self) -> Option<Candidate> {
        loop {
            let Choice { candidate, before, after } = self.chosen.pop()?;
            let operation = self.operation(candidate);
            if let Candidate::Answered(place) = candidate {
                self.ends[operation].into_iter().for_each(|end| self.link(end));
                self.link(place);
            }
            self.done.remove(operation);
            self.content = before;
            if before != after || !self.history[operation].changed_nothing() {
                return Some(candidate);
            }
        }
    }

    fn unlink(&mut self, place: usize) {
        let (previous, next) = (self.previous[place], self.next[place]);
        self.next[previous] = next;
        self.previous[next] = previous;
    }

    /// The inverse, in the inverse order.
    fn link(&mut self, place: usize) {
        let (previous, next) = (self.previous[place], self.next[place]);
        self.next[previous] = place;
        self.previous[next] = place;
    }

    /// The operations around the first one that could not be explained.
    fn story(&self) -> String {
        let mut order: Vec<usize> = (0..self.history.len()).collect();
        order.sort_by_key(|operation| self.history[*operation].called);
        let first = order.iter().position(|operation| !self.best.contains(*operation)).unwrap_or(0);
        let from = first.saturating_sub(SHOWN_LEN_MAX / 2);
        let mut out = String::new();
        for operation in order.into_iter().skip(from).take(SHOWN_LEN_MAX) {
            let mark = if self.best.contains(operation) { ' ' } else { '?' };
            writeln!(out, "{mark} {}", self.history[operation]).unwrap();
        }
        out
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Operation { client, action, called, answered, position } = self;
        match answered {
            Some((at, answer)) => {
                write!(f, "{called:>13} .. {at:<13} client {client:<3} {action:?}: {answer:?}")?;
                position.map_or(Ok(()), |position| write!(f, " at {position}"))
            }
            None => write!(f, "{called:>13} .. {:<13} client {client:<3} {action:?}: unknown", "?"),
        }
    }
}

impl Edge {
    fn at(self, history: &[Operation]) -> u64 {
        let Operation { called, answered, .. } = history[self.operation];
        answered.filter(|_| !self.is_call).map_or(called, |(at, _)| at)
    }
}

/// Which operations are explained.
#[derive(Debug, Clone)]
struct Explained {
    words: Box<[u64]>,
    len: usize,
    /// The same in a few bytes: the marks of all of them.
    mark: u128,
}

impl Explained {
    fn none(len: usize) -> Explained {
        Explained { words: vec![0; len.div_ceil(64)].into(), len: 0, mark: 0 }
    }

    fn insert(&mut self, place: usize) {
        self.words[place / 64] |= 1 << (place % 64);
        (self.len, self.mark) = (self.len + 1, self.mark ^ mark(place));
    }

    fn remove(&mut self, place: usize) {
        self.words[place / 64] &= !(1 << (place % 64));
        (self.len, self.mark) = (self.len - 1, self.mark ^ mark(place));
    }

    fn contains(&self, place: usize) -> bool {
        self.words[place / 64] & (1 << (place % 64)) != 0
    }
}

/// A number for each operation, so long that no two sets of them have the same sum.
fn mark(operation: usize) -> u128 {
    let mut random = Random((operation as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    (0..4).fold(0, |mark, _| mark << 32 | u128::from(random.next() & 0xffff_ffff))
}

#[cfg(test)]
#[path = "linear_test.rs"]
mod tests;
