use super::*;

const PATCH: Call<'_> = Call {
    method: "PATCH",
    verb: "patch",
    group: "example.com",
    resource: "widgets",
    subresource: "status",
    namespace: "default",
    name: "a",
};
const WATCH: Call<'_> = Call {
    method: "GET",
    verb: "watch",
    group: "example.com",
    resource: "widgets",
    subresource: "",
    namespace: "",
    name: "",
};

fn code(action: Option<Action>) -> Option<u16> {
    match action?.then {
        Then::Fail(failure) => Some(failure.code),
        _ => None,
    }
}

#[test]
fn a_rule_acts_as_often_as_it_says_and_then_no_more() {
    let faults = Faults::default();
    let rule = faults.add("PATCH widgets/status -> 409 twice".parse().unwrap());
    let codes: Vec<_> = (0..4).map(|_| code(faults.decide(&PATCH))).collect();
    assert_eq!(codes, [Some(409), Some(409), None, None]);
    assert_eq!(rule.hits(), 2);
}

#[test]
fn the_first_rule_wins_until_it_is_used_up_and_then_the_next_one_acts() {
    let faults = Faults::default();
    faults.add(Fault::on("* *").status(500).times(1));
    faults.add(Fault::on("PATCH widgets/status").status(409));
    assert_eq!([code(faults.decide(&PATCH)), code(faults.decide(&PATCH))], [Some(500), Some(409)]);
}

#[test]
fn skipped_requests_are_served_and_are_not_hits() {
    let faults = Faults::default();
    let rule = faults.add("patch widgets/status -> 503 once skip 2".parse().unwrap());
    let codes: Vec<_> = (0..4).map(|_| code(faults.decide(&PATCH))).collect();
    assert_eq!(codes, [None, None, Some(503), None]);
    assert_eq!(rule.hits(), 1);
}

#[test]
fn a_removed_rule_acts_no_more_and_a_dropped_handle_removes_nothing() {
    let faults = Faults::default();
    let rule = faults.add(Fault::on("* *").status(500));
    faults.add(Fault::on("* *").status(409));
    faults.decide(&PATCH);
    rule.remove();
    assert_eq!((code(faults.decide(&PATCH)), rule.hits()), (Some(409), 1));
    faults.clear();
    assert_eq!(faults.decide(&PATCH), None);
}

#[test]
fn a_status_speaks_as_the_real_server_does() {
    let faults = Faults::default();
    faults.add(Fault::on("* *").status(409));
    let Some(Action { then: Then::Fail(failure), .. }) = faults.decide(&PATCH) else { panic!("no failure") };
    assert_eq!(failure.reason, Some(Reason::Conflict));
    assert!(failure.message.starts_with("Operation cannot be fulfilled on widgets.example.com \"a\": the object has"));
    let details = failure.details.unwrap();
    assert_eq!((&*details.name, &*details.group, &*details.kind), ("a", "example.com", "widgets"));
    let Some(Action { then: Then::Fail(taken), .. }) = faults.decide(&Call { verb: "create", ..PATCH }) else {
        panic!("no failure")
    };
    assert_eq!(taken.reason, Some(Reason::AlreadyExists));
}

#[test]
fn too_many_tells_when_to_come_back_in_whole_seconds() {
    let faults = Faults::default();
    faults.add(Fault::on("* *").too_many(Duration::from_millis(1500)).times(1));
    faults.add("* * -> 429 retry-after 3".parse().unwrap());
    let seconds = || match faults.decide(&PATCH)?.then {
        Then::Fail(failure) if failure.code == 429 => failure.details?.retry_after_seconds,
        _ => None,
    };
    assert_eq!([seconds(), seconds()], [Some(2), Some(3)]);
}

#[test]
fn a_delay_alone_goes_on_and_with_another_action_comes_first() {
    let faults = Faults::default();
    faults.add("* * -> delay 200ms once".parse().unwrap());
    faults.add(Fault::on("* *").delay(Duration::from_secs(1)).close());
    assert_eq!(faults.decide(&PATCH), Some(Action { delay: Duration::from_millis(200), then: Then::Serve }));
    assert_eq!(faults.decide(&PATCH), Some(Action { delay: Duration::from_secs(1), then: Then::Close }));
}

#[test]
fn a_drop_is_for_watches_and_other_requests_do_not_use_it_up() {
    let faults = Faults::default();
    faults.add("GET widgets -> drop after 5 once".parse().unwrap());
    assert_eq!(faults.decide(&Call { verb: "list", ..WATCH }), None);
    assert_eq!(faults.decide(&WATCH).unwrap().then, Then::DropWatchAfter(5));
    assert_eq!(faults.decide(&WATCH), None);
}

#[test]
fn a_text_that_is_no_rule_is_told_what_is() {
    for (text, told) in [
        ("PATCH widgets", "has no `->`"),
        ("PATCH -> 409", "VERB RESOURCE"),
        ("* * ->", "`` is no action"),
        ("* * -> 200", "`200` is no action"),
        ("* * -> 409 often", "`often` is no action"),
        ("* * -> delay 3h", "delay 200ms"),
        ("* * -> many times", "3 times"),
        ("* * -> 429 retry-after soon", "429 retry-after 3"),
    ] {
        let error = text.parse::<Fault>().unwrap_err().to_string();
        assert!(error.contains(told), "{text}: {error}");
    }
}

#[test]
#[should_panic(expected = "`Patch` is no verb")]
fn a_pattern_in_code_that_is_none_panics_with_what_is() {
    Fault::on("Patch widgets");
}
