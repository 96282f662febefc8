//! Histories that can be explained, and those that cannot.

use super::{Action::*, Answer::*, State::*, *};

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

/// As in a long storm: a counter of which many additions have no answer, some of which were done.
#[test]
fn many_unknown_outcomes_are_decided() {
    let mut random = Random(11);
    let (mut history, mut count) = (Vec::new(), 0);
    for at in (0..30_000).step_by(3) {
        if random.below(100) == 0 {
            history.push(operation(Add(1), at, None));
            count += random.below(2);
        }
        count += 1;
        history.push(operation(Add(1), at + 1, Some((at + 2, Holds(Some(count))))));
    }
    let unknown = history.iter().filter(|operation| operation.answered.is_none()).count();
    assert!(unknown > 60, "{unknown}");
    assert_eq!(check(Live(0), &history), Verdict::Linearizable);
    let last = history.last_mut().unwrap();
    last.answered = Some((last.called + 1, Holds(Some(count + unknown as u64))));
    assert!(matches!(check(Live(0), &history), Verdict::Impossible(_)));
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
