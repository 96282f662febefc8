//! Whether what clients saw of one key can be explained by one document that does one thing after the other. Knows
//! nothing of servers.
//!
//! The search is that of Wing and Gong with Lowe's memory of what was tried: an operation can come next if no
//! other one was over before it began; if nothing can come next, the last choice was wrong. An operation without
//! an answer may have been done at any time after it began, or never.

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

/// The beginning or the end of an operation, in the order of time.
#[derive(Debug, Clone, Copy)]
struct Edge {
    operation: usize,
    is_call: bool,
}

/// The edges of the operations that are still to be explained are a doubly linked list; the first place is its head.
struct Search<'a> {
    history: &'a [Operation],
    edges: Vec<Edge>,
    next: Vec<usize>,
    previous: Vec<usize>,
    /// By operation, the place of its end.
    ends: Vec<Option<usize>>,
    content: Content,
    done: Explained,
    /// The places that were chosen, and what the document held before.
    chosen: Vec<(usize, Content)>,
    seen: HashSet<(Explained, Content)>,
    /// The most that could be explained.
    best: Explained,
}

/// After the last place.
const END: usize = 0;

impl<'a> Search<'a> {
    fn new(start: Content, history: &'a [Operation]) -> Search<'a> {
        let mut edges = vec![Edge { operation: usize::MAX, is_call: false }];
        for (operation, done) in history.iter().enumerate() {
            edges.push(Edge { operation, is_call: true });
            if done.answered.is_some() {
                edges.push(Edge { operation, is_call: false });
            }
        }
        // What begins in the moment something ends may have come before it.
        edges[1..].sort_by_key(|edge| {
            let operation = &history[edge.operation];
            let end = operation.answered.map_or(u64::MAX, |(at, _)| at);
            (if edge.is_call { operation.called } else { end }, !edge.is_call)
        });
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
            content: start,
            done: Explained::none(history.len()),
            chosen: Vec::new(),
            seen: HashSet::new(),
            best: Explained::none(history.len()),
        }
    }

    fn run(mut self) -> Verdict {
        let mut place = self.next[0];
        loop {
            if place == END {
                // No end is left to be passed, so everything that has one is explained.
                return Verdict::Linearizable;
            }
            let is_call = self.edges[place].is_call;
            place = match is_call {
                true if self.choose(place) => self.next[0],
                true => self.next[place],
                false => match self.go_back() {
                    Some(next) => next,
                    None => return Verdict::Impossible(self.story()),
                },
            };
            if self.seen.len() >= SEEN_LEN_MAX {
                return Verdict::Undecided;
            }
        }
    }

    /// Lets an operation come next, if its answer allows that and it was not tried in vain.
    fn choose(&mut self, place: usize) -> bool {
        let operation = self.edges[place].operation;
        let Some(after) = self.history[operation].explains(self.content) else { return false };
        let mut done = self.done.clone();
        done.insert(operation);
        if !self.seen.insert((done.clone(), after)) {
            return false;
        }
        if done.len() > self.best.len() {
            self.best = done.clone();
        }
        self.chosen.push((place, self.content));
        (self.done, self.content) = (done, after);
        self.unlink(place);
        if let Some(end) = self.ends[operation] {
            self.unlink(end);
        }
        true
    }

    /// Takes the last choice back; gives the place to try next.
    fn go_back(&mut self) -> Option<usize> {
        let (place, content) = self.chosen.pop()?;
        let operation = self.edges[place].operation;
        if let Some(end) = self.ends[operation] {
            self.link(end);
        }
        self.link(place);
        self.done.remove(operation);
        self.content = content;
        Some(self.next[place])
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

/// Which operations are explained.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Explained(Box<[u64]>);

impl Explained {
    fn none(len: usize) -> Explained {
        Explained(vec![0; len.div_ceil(64)].into())
    }

    fn insert(&mut self, place: usize) {
        self.0[place / 64] |= 1 << (place % 64);
    }

    fn remove(&mut self, place: usize) {
        self.0[place / 64] &= !(1 << (place % 64));
    }

    fn contains(&self, place: usize) -> bool {
        self.0[place / 64] & (1 << (place % 64)) != 0
    }

    fn len(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::{Action::*, Answer::*, State::*, *};
    use crate::random::Random;

    fn operation(action: Action, called: u64, answered: Option<(u64, Answer)>) -> Operation {
        Operation { client: 0, action, called, answered, position: None }
    }

    #[track_caller]
    fn accepts(start: State, history: &[(Action, u64, u64, Answer)]) {
        let history: Vec<_> = history
            .iter()
            .map(|(action, from, to, answer)| operation(*action, *from, Some((*to, *answer))))
            .collect();
        assert_eq!(check(start, &history), Verdict::Linearizable);
    }

    #[track_caller]
    fn rejects(start: State, history: &[(Action, u64, u64, Answer)]) {
        let history: Vec<_> = history
            .iter()
            .map(|(action, from, to, answer)| operation(*action, *from, Some((*to, *answer))))
            .collect();
        assert!(matches!(check(start, &history), Verdict::Impossible(_)), "{history:#?}");
    }

    #[test]
    fn one_after_the_other() {
        accepts(
            Unborn,
            &[
                (Get, 1, 2, Holds(None)),
                (Update(1), 3, 4, Missing),
                (Delete, 5, 6, Missing),
                (Insert(1), 7, 8, Done),
                (Insert(2), 9, 10, Exists),
                (Swap(2, 3), 11, 12, Changed),
                (Swap(1, 3), 13, 14, Done),
                (Add(4), 15, 16, Holds(Some(7))),
                (Update(8), 17, 18, Done),
                (Restore, 19, 20, NotDeleted),
                (Delete, 21, 22, Done),
                (Update(9), 23, 24, Deleted),
                (Delete, 25, 26, Deleted),
                (Get, 27, 28, Holds(None)),
                (Look, 28, 29, Is(Gone(8))),
                (Restore, 29, 30, Done),
                (Get, 31, 32, Holds(Some(8))),
                (Replace(9), 33, 34, Done),
                (Get, 35, 36, Holds(Some(9))),
                (Delete, 37, 38, Done),
                (Insert(10), 39, 40, Done),
                (Delete, 41, 42, Done),
                (Replace(11), 43, 44, Done),
                (Get, 45, 46, Holds(Some(11))),
            ],
        );
    }

    #[test]
    fn what_overlaps_may_be_in_any_order() {
        let (one, two) = ((Replace(1), 1, 10, Done), (Replace(2), 2, 9, Done));
        accepts(Unborn, &[one, two, (Get, 11, 12, Holds(Some(1)))]);
        accepts(Unborn, &[one, two, (Get, 11, 12, Holds(Some(2)))]);
        accepts(Unborn, &[one, (Get, 2, 3, Holds(Some(1))), (Get, 4, 5, Holds(Some(1)))]);
        accepts(Unborn, &[(Update(1), 1, 10, Deleted), (Insert(2), 2, 9, Done), (Delete, 3, 8, Done)]);
    }

    #[test]
    fn a_read_that_goes_back_in_time() {
        rejects(Unborn, &[(Replace(1), 1, 2, Done), (Get, 3, 4, Holds(None))]);
        rejects(Unborn, &[(Replace(1), 1, 10, Done), (Get, 2, 3, Holds(Some(1))), (Get, 4, 5, Holds(None))]);
        let written = [(Replace(1), 1, 2, Done), (Replace(2), 3, 4, Done)];
        rejects(Live(0), &[written[0], written[1], (Get, 5, 6, Holds(Some(1)))]);
    }

    #[test]
    fn a_lost_update() {
        rejects(Live(0), &[(Add(1), 1, 4, Holds(Some(1))), (Add(1), 2, 3, Holds(Some(1)))]);
        rejects(Unborn, &[(Insert(1), 1, 4, Done), (Insert(2), 2, 3, Done)]);
        accepts(Live(0), &[(Add(1), 1, 4, Holds(Some(2))), (Add(1), 2, 3, Holds(Some(1)))]);
    }

    #[test]
    fn a_deleted_document_that_comes_back() {
        rejects(Live(1), &[(Delete, 1, 2, Done), (Get, 3, 4, Holds(Some(1)))]);
        rejects(Live(1), &[(Delete, 1, 2, Done), (Insert(2), 3, 4, Exists)]);
        rejects(Live(1), &[(Delete, 1, 4, Done), (Delete, 2, 3, Done)]);
        rejects(Live(1), &[(Update(2), 1, 2, Done), (Delete, 3, 4, Done), (Update(3), 5, 6, Done)]);
        rejects(Live(1), &[(Delete, 1, 2, Done), (Replace(2), 3, 4, Deleted)]);
        rejects(Live(1), &[(Delete, 1, 2, Done), (Insert(2), 3, 4, Deleted)]);
    }

    #[test]
    fn a_swap_goes_by_the_position_not_by_what_is_held() {
        let history = |done: &[(Action, Answer, Option<u64>)]| -> Vec<Operation> {
            let times = (1..).step_by(2);
            times
                .zip(done)
                .map(|(from, (action, answer, position))| Operation {
                    position: *position,
                    ..operation(*action, from, Some((from + 1, *answer)))
                })
                .collect()
        };
        let possible = [
            &[(Replace(1), Done, Some(4)), (Swap(4, 2), Done, Some(5)), (Get, Holds(Some(2)), Some(5))][..],
            &[(Delete, Done, Some(4)), (Restore, Done, Some(5)), (Swap(0, 2), Changed, None)],
            &[(Swap(0, 1), Done, Some(4)), (Swap(0, 2), Changed, None)],
        ];
        for done in possible {
            assert_eq!(check(Live(0), &history(done)), Verdict::Linearizable, "{done:?}");
        }
        let impossible = [
            &[(Delete, Done, Some(4)), (Restore, Done, Some(5)), (Swap(0, 2), Done, Some(6))][..],
            &[(Swap(0, 1), Done, Some(4)), (Swap(0, 2), Done, Some(5))],
            &[(Swap(0, 1), Changed, None)],
            // Positions grow, and what is read is at the position of what was done last.
            &[(Replace(1), Done, Some(4)), (Replace(2), Done, Some(3))],
            &[(Replace(1), Done, Some(4)), (Get, Holds(Some(1)), Some(5))],
        ];
        for done in impossible {
            assert!(matches!(check(Live(0), &history(done)), Verdict::Impossible(_)), "{done:?}");
        }
    }

    #[test]
    fn what_was_done_twice() {
        let written = [(Replace(1), 1, 2, Done), (Replace(2), 3, 4, Done), (Get, 5, 6, Holds(Some(2)))];
        accepts(Unborn, &written);
        rejects(Unborn, &[&written[..], &[(Get, 7, 8, Holds(Some(1)))]].concat());
        rejects(Live(0), &[(Add(1), 1, 2, Holds(Some(1))), (Get, 3, 4, Holds(Some(2)))]);
    }

    #[test]
    fn an_unknown_outcome_is_done_later_or_never_but_not_before() {
        let unknown = |action, called| operation(action, called, None);
        let get = |from, to, value| operation(Get, from, Some((to, Holds(value))));
        let delete = operation(Delete, 4, Some((5, Done)));
        let later = [unknown(Replace(1), 3), get(4, 5, None), get(6, 7, Some(1)), get(8, 9, Some(1))];
        assert_eq!(check(Unborn, &later), Verdict::Linearizable);
        assert_eq!(check(Unborn, &[unknown(Delete, 1), get(4, 5, None)]), Verdict::Linearizable);
        for impossible in [
            vec![get(1, 2, Some(1)), unknown(Replace(1), 3)],
            vec![unknown(Replace(1), 1), get(2, 3, Some(1)), get(4, 5, None)],
            vec![unknown(Replace(1), 1), get(2, 3, Some(1)), delete, get(6, 7, Some(1))],
        ] {
            assert!(matches!(check(Unborn, &impossible), Verdict::Impossible(_)), "{impossible:#?}");
        }
    }

    #[test]
    fn the_story_shows_what_cannot_be_explained() {
        let history = [
            operation(Replace(1), 1, Some((2, Done))),
            operation(Get, 3, Some((4, Holds(Some(7))))),
            operation(Get, 5, None),
        ];
        let Verdict::Impossible(story) = check(Unborn, &history) else { panic!("nobody wrote 7") };
        let marks: Vec<char> = story.lines().map(|line| line.chars().next().unwrap()).collect();
        assert_eq!(marks, [' ', '?', '?'], "{story}");
        assert!(story.contains("Get: Holds(Some(7))"), "{story}");
    }

    /// All orders, one by one.
    fn slowly(content: Content, history: &[Operation]) -> bool {
        let next = |place: usize| {
            let operation = &history[place];
            let others = history.iter().enumerate().filter(|(other, _)| *other != place);
            let ends = others.filter_map(|(_, other)| other.answered.map(|(at, _)| at));
            if ends.min().is_some_and(|end| end < operation.called) {
                return false;
            }
            let Some(after) = operation.explains(content) else { return false };
            let rest: Vec<Operation> = [&history[..place], &history[place + 1..]].concat();
            slowly(after, &rest)
        };
        history.iter().all(|operation| operation.answered.is_none()) || (0..history.len()).any(next)
    }

    #[test]
    fn it_finds_what_trying_all_orders_finds() {
        let mut random = Random(7);
        let mut found = [0; 2];
        for _ in 0..20_000 {
            let len = 1 + random.below(6);
            let history: Vec<Operation> = (0..len).map(|_| any_operation(&mut random)).collect();
            let start = [Unborn, Live(1), Gone(1)][random.below(3) as usize];
            let expected = slowly(Content { state: start, position: Some(0) }, &history);
            let verdict = check(start, &history);
            assert_eq!(verdict == Verdict::Linearizable, expected, "{start:?} {history:#?} {verdict:?}");
            found[usize::from(expected)] += 1;
        }
        assert!(found.iter().all(|len| *len > 2000), "both kinds must be tried: {found:?}");
    }

    fn any_operation(random: &mut Random) -> Operation {
        let value = random.below(3);
        let actions = [Insert(value), Replace(value), Update(value), Swap(value, 3), Add(1), Delete, Restore];
        let action = *actions.get(random.below(10) as usize).unwrap_or(&Get);
        let refusals = [Exists, Deleted, Missing, NotDeleted, Changed];
        let answer = match (action, random.below(8)) {
            (Get | Add(_), 0..4) => Holds(None),
            (Get | Add(_), held) => Holds(Some(held - 4)),
            (_, 0..5) => Done,
            _ => refusals[random.below(5) as usize],
        };
        let called = random.below(10);
        let answered = (random.below(6) > 0).then(|| (called + 1 + random.below(8), answer));
        operation(action, called, answered)
    }
}
