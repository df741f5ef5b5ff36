use super::*;

const PATCH: RequestInfo<'_> = RequestInfo {
    method: "PATCH",
    verb: "patch",
    group: "example.com",
    resource: "widgets",
    subresource: "status",
    namespace: "default",
    name: "a",
};
const WATCH: RequestInfo<'_> = RequestInfo {
    method: "GET",
    verb: "watch",
    group: "example.com",
    resource: "widgets",
    subresource: "",
    namespace: "",
    name: "",
};

fn code(action: Option<Action>) -> Option<u16> {
    match action?.kind {
        ActionKind::Fail(failure) => Some(failure.code),
        _ => None,
    }
}

#[test]
fn unused_lists_the_rules_that_acted_on_no_request() {
    let faults = Faults::default();
    faults.add("PATCH widgets/status -> 409 skip 1".parse().unwrap());
    let removed = faults.add("PATCH gadgets -> 409".parse().unwrap());
    faults.add("PATCH gadgets -> 409".parse().unwrap());
    faults.decide(&PATCH);
    assert_eq!(faults.unused().len(), 3, "a skipped request does not count");
    faults.decide(&PATCH);
    removed.remove();
    let unused = faults.unused();
    assert!(
        unused.len() == 1 && unused[0].contains("faults_tests.rs:"),
        "{unused:?}"
    );
}

#[test]
fn a_rule_with_a_limit_acts_that_many_times() {
    let faults = Faults::default();
    let rule = faults.add("PATCH widgets/status -> 409 twice".parse().unwrap());
    let codes: Vec<_> = (0..4).map(|_| code(faults.decide(&PATCH))).collect();
    assert_eq!(codes, [Some(409), Some(409), None, None]);
    assert_eq!(rule.hits(), 2);
}

#[test]
fn the_first_matching_rule_acts_until_it_is_used_up() {
    let faults = Faults::default();
    faults.add(Fault::on("* *").status(500).times(1));
    faults.add(Fault::on("PATCH widgets/status").status(409));
    assert_eq!(
        [code(faults.decide(&PATCH)), code(faults.decide(&PATCH))],
        [Some(500), Some(409)]
    );
}

#[test]
fn skipped_requests_are_served_and_do_not_count_as_hits() {
    let faults = Faults::default();
    let rule = faults.add("patch widgets/status -> 503 once skip 2".parse().unwrap());
    let codes: Vec<_> = (0..4).map(|_| code(faults.decide(&PATCH))).collect();
    assert_eq!(codes, [None, None, Some(503), None]);
    assert_eq!(rule.hits(), 1);
}

#[test]
fn removing_a_rule_ends_it_and_dropping_its_handle_does_not() {
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
fn a_status_has_the_message_of_kube_apiserver() {
    let faults = Faults::default();
    faults.add(Fault::on("* *").status(409));
    let Some(Action {
        kind: ActionKind::Fail(failure),
        ..
    }) = faults.decide(&PATCH)
    else {
        panic!("no failure")
    };
    assert_eq!(failure.reason, Some(Reason::Conflict));
    assert!(
        failure.message.starts_with(
            "Operation cannot be fulfilled on widgets.example.com \"a\": the object has"
        )
    );
    let details = failure.details.unwrap();
    assert_eq!(
        (&*details.name, &*details.group, &*details.kind),
        ("a", "example.com", "widgets")
    );
    let Some(Action {
        kind: ActionKind::Fail(taken),
        ..
    }) = faults.decide(&RequestInfo {
        verb: "create",
        ..PATCH
    })
    else {
        panic!("no failure")
    };
    assert_eq!(taken.reason, Some(Reason::AlreadyExists));
}

#[test]
fn too_many_sends_retry_after_in_whole_seconds() {
    let faults = Faults::default();
    faults.add(
        Fault::on("* *")
            .too_many(Duration::from_millis(1500))
            .times(1),
    );
    faults.add("* * -> 429 retry-after 3".parse().unwrap());
    let seconds = || match faults.decide(&PATCH)?.kind {
        ActionKind::Fail(failure) if failure.code == 429 => failure.details?.retry_after_seconds,
        _ => None,
    };
    assert_eq!([seconds(), seconds()], [Some(2), Some(3)]);
}

#[test]
fn a_delay_precedes_the_other_action_or_serving() {
    let faults = Faults::default();
    faults.add("* * -> delay 200ms once".parse().unwrap());
    faults.add(Fault::on("* *").delay(Duration::from_secs(1)).close());
    assert_eq!(
        faults.decide(&PATCH),
        Some(Action {
            delay: Duration::from_millis(200),
            kind: ActionKind::Serve
        })
    );
    assert_eq!(
        faults.decide(&PATCH),
        Some(Action {
            delay: Duration::from_secs(1),
            kind: ActionKind::Close
        })
    );
}

#[test]
fn drop_after_acts_only_on_watches() {
    let faults = Faults::default();
    faults.add("GET widgets -> drop after 5 once".parse().unwrap());
    assert_eq!(
        faults.decide(&RequestInfo {
            verb: "list",
            ..WATCH
        }),
        None
    );
    assert_eq!(
        faults.decide(&WATCH).unwrap().kind,
        ActionKind::DropWatchAfter(5)
    );
    assert_eq!(faults.decide(&WATCH), None);
}

#[test]
fn an_invalid_rule_is_rejected_with_the_valid_syntax() {
    for (text, expected) in [
        ("PATCH widgets", "no `->`"),
        ("PATCH -> 409", "VERB RESOURCE"),
        ("* * ->", "invalid action ``"),
        ("* * -> 200", "invalid action `200`"),
        ("* * -> 409 often", "invalid action `often`"),
        ("* * -> delay 3h", "delay 200ms"),
        ("* * -> many times", "3 times"),
        ("* * -> 429 retry-after soon", "429 retry-after 3"),
    ] {
        let error = text.parse::<Fault>().unwrap_err().to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
#[should_panic(expected = "`Patch` is not a valid verb")]
fn an_invalid_pattern_panics_with_the_reason() {
    Fault::on("Patch widgets");
}
