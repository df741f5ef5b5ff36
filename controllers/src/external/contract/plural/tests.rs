use super::*;

fn assert_plurals(table: &str) {
    for entry in table.split_whitespace() {
        let (word, plural) = entry.split_once('/').expect("word/plural");
        assert_eq!(pluralize(word), plural, "{word}");
    }
}

/// Kinds whose plural differs between flect and kube's rules.
#[test]
fn names_that_other_rules_get_wrong_are_those_of_flect() {
    let table = [
        ("Metal3Data", "metal3data"),
        ("Metadata", "metadata"),
        ("Index", "indices"),
        ("Vertex", "vertices"),
        ("Repo", "repoes"),
        ("Hero", "heroes"),
        ("Kubernetes", "kubernetes"),
        ("Redis", "redis"),
        ("Talos", "talos"),
        ("Nodes", "nodes"),
        ("Media", "media"),
        ("Leaf", "leaves"),
        ("Chassis", "chassis"),
        ("Quiz", "quizzes"),
    ];
    for (kind, plural) in table {
        assert_eq!(
            crd_name("example.com", kind),
            format!("{plural}.example.com")
        );
    }
}

#[test]
fn names_of_common_provider_kinds_are_plain_plurals() {
    assert_plurals(
        "awscluster/awsclusters dockermachinetemplate/dockermachinetemplates \
         ipaddress/ipaddresses azureclusteridentity/azureclusteridentities \
         proxmoxmachine/proxmoxmachines maascluster/maasclusters talosconfig/talosconfigs \
         kubeadmcontrolplane/kubeadmcontrolplanes packetcluster/packetclusters \
         ibmpowervsimage/ibmpowervsimages gateway/gateways policy/policies",
    );
}

/// Compared with the Go package for every word, suffix and acronym of the tables.
#[test]
fn words_have_priority_over_suffixes_and_keep_their_prefix() {
    assert_plurals(
        "child/children ox/oxen metalox/metaloxes awsindex/awsindices medium/media media/media \
         octopus/octupuses blues/blues awsblues/awsblues axis/axes metalaxis/metalaxis \
         superbuffalo/superbuffaloes quota/quotas data/data datum/data vertices/vertices \
         indexes/indexes information/information cause/causes base/bases human/humans \
         proxmoxhuman/proxmoxhumans gas/gas",
    );
}

#[test]
fn the_first_suffix_that_a_word_has_decides() {
    assert_plurals(
        "knative/knatives belief/beliefs shelf/shelves safe/saves proxy/proxies key/keys \
         soliloquy/soliloquies stadium/stadiums museum/museums virus/viruses switch/switches \
         portfolio/portfolios pass/passes fez/fezzes matrix/matrices nano/nanos silo/silos \
         photo/photos zoo/zoos echo/echoes box/boxes modula/mobulae",
    );
}

/// flect appends to the name of an acronym that ends in S, which is a defect of flect.
#[test]
fn names_of_acronyms_are_as_malformed_as_those_of_flect() {
    assert_plurals(
        "dns/dnsDNSes ids/idsIDSes ips/ipsIPSes https/httpsHTTPSes api/apis tia/tias \
         mydns/mydns pop3/pop3s",
    );
}

#[test]
fn only_the_last_part_of_a_name_changes() {
    assert_plurals(
        "load-balancer/load-balancers big-index/big-indices my-dns/my-dnsDNSes foo-/foo-foos",
    );
    assert_eq!(crd_name("example.com", ""), ".example.com");
    assert_eq!(crd_name("", "Pod"), "pods.");
}
