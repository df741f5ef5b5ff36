//! Names of CRDs, which follow from the kind.
//!
//! Cluster API requires of providers that a CRD is named `<plural>.<group>`, with the plural of the
//! Go package flect 1.0.3. That is not the plural of English, nor that of kubebuilder's or kube's
//! rules: `Metal3Data` becomes `metal3data`, and `Repo` becomes `repoes`. The tables have the words
//! and suffixes of flect, in its order.

/// Returns the name that the CRD of a kind has by the contract of Cluster API.
///
/// ```
/// use steersman_controllers::external::contract::crd_name;
///
/// let group = "infrastructure.cluster.x-k8s.io";
/// assert_eq!(crd_name(group, "DockerCluster"), format!("dockerclusters.{group}"));
/// assert_eq!(crd_name(group, "Metal3Data"), format!("metal3data.{group}"));
/// ```
pub fn crd_name(group: &str, kind: &str) -> String {
    format!("{}.{group}", pluralize(&kind.to_lowercase()))
}

/// Irregular words as `singular/plural`, some with another plural that is also accepted.
///
/// The words also apply as suffixes, except those with `=`. A plural with `>` is not accepted as
/// plural of the word.
const WORDS: &str = "\
    aircraft/aircraft beef/beef/beefs bison/bison >blues/blues chassis/chassis deer/deer \
    fish/fish/fishes moose/moose police/police salmon/salmon/salmons series/series sheep/sheep \
    shrimp/shrimp/shrimps species/species swine/swine/swines trout/trout/trouts tuna/tuna/tunas \
    you/you child/children =ox/oxen foot/feet goose/geese man/men human/humans =louse/lice \
    mouse/mice tooth/teeth woman/women =die/dice person/people adieu/adieux/adieus \
    fabliau/fabliaux bureau/bureaus/bureaux criterion/criteria ganglion/ganglia/ganglions \
    lexicon/lexica/lexicons mitochondrion/mitochondria/mitochondrions noumenon/noumena \
    phenomenon/phenomena taxon/taxa media/media >medium/media/mediums stadium/stadiums/stadia \
    aquarium/aquaria/aquariums auditorium/auditoria/auditoriums symposium/symposia/symposiums \
    curriculum/curriculums/curricula quota/quotas alumnus/alumni/alumnuses bacillus/bacilli \
    cactus/cacti/cactuses coccus/cocci focus/foci/focuses locus/loci/locuses \
    nucleus/nuclei/nucleuses octopus/octupuses/octopi radius/radii/radiuses syllabus/syllabi \
    corpus/corpora/corpuses genus/genera alumna/alumnae vertebra/vertebrae \
    differentia/differentiae minutia/minutiae vita/vitae larva/larvae postcava/postcavae \
    praecava/praecavae uva/uvae apex/apices/apexes codex/codices/codexes index/indices/indexes \
    latex/latices/latexes vertex/vertices/vertexes vortex/vortices/vortexes \
    appendix/appendices/appendixes radix/radices/radixes helix/helices/helixes =axis/axes \
    crisis/crises >ellipsis/ellipses genesis/geneses oasis/oases thesis/theses testis/testes \
    base/bases >basis/bases =alias/aliases vedalia/vedalias =use/uses abuse/abuses cause/causes \
    clause/clauses cruse/cruses excuse/excuses fuse/fuses house/houses misuse/misuses muse/muses \
    pause/pauses ache/aches topaz/topazes buffalo/buffaloes/buffalos potato/potatoes \
    tomato/tomatoes equipment/equipment information/information jeans/jeans money/money \
    news/news rice/rice dwarf/dwarfs/dwarves hoof/hoofs/hooves thief/thieves chive/chives \
    hive/hives move/moves movie/movies cookie/cookies pretorium/pretoriums agenda/agendas \
    formula/formulas/formulae shoe/shoes =toe/toes graffiti/graffiti";

/// Suffixes as `singular/plural`. The first that a word has decides.
const SUFFIXES: &str = "\
    tive/tives eaf/eaves oaf/oaves afe/aves arf/arves rfe/rves rf/rves lf/lves fe/ves ay/ays \
    ey/eys oy/oys quy/quies uy/uys y/ies eau/eaux bula/bulae dula/bulae lula/bulae nula/bulae \
    vula/bulae hedron/hedra ium/ia seum/seums eum/ea oum/oa stracum/straca dum/da elum/ela \
    ilum/ila olum/ola ulum/ula llum/lla ylum/yla imum/ima ernum/erna gnum/gna brum/bra crum/cra \
    terum/tera serum/sera trum/tra antum/anta atum/ata entum/enta etum/eta itum/ita otum/ota \
    utum/uta ctum/cta ovum/ova trix/trices iasis/iases mesis/meses kinesis/kineses resis/reses \
    gnosis/gnoses opsis/opses ysis/yses ouse/ouses lause/lauses us/uses ch/ches io/ios sh/shes \
    ss/sses ez/ezzes iz/izzes tz/tzes zz/zzes ano/anos lo/los to/tos oo/oos o/oes x/xes";

/// Words that flect writes in capitals, which no word or suffix of the tables matches.
const ACRONYMS: &str = "\
    OK UTF8 HTML JSON JWT ID UUID SQL ACK ACL ADSL AES ANSI API ARP ATM BGP BSS CCITT CHAP CIDR \
    CIR CLI CPE CPU CRC CRT CSMA CMOS DCE DEC DES DHCP DNS DRAM DSL DSLAM DTE DMI EHA EIA EIGRP \
    EOF ESS FCC FCS FDDI FTP GBIC GEPOF HDLC HTTP HTTPS IANA ICMP IDF IDS IEEE IETF IMAP IP IPS \
    ISDN ISP LACP LAN LAPB LAPF LLC MAC MC MDF MIB MPLS MTU NAC NAT NBMA NIC NRZ NRZI NVRAM OSI \
    OSPF OUI PAP PAT PC PIM PCM PDU POP3 POTS PPP PPTP PTT PVST RAM RARP RFC RIP RLL ROM RSTP \
    RTP RCP SDLC SFD SFP SLARP SLIP SMTP SNA SNAP SNMP SOF SRAM SSH SSID STP SYN TDM TFTP TIA \
    TOFU UDP URL URI USB UTP VC VLAN VLSM VPN W3C WAN WEP WPA WWW";

/// Returns the plural of a word in lower case.
fn pluralize(whole: &str) -> String {
    // Only the last part of a name such as `load-balancer` changes.
    let is_separator = |c: char| matches!(c, '_' | ':' | '-' | '/') || c.is_whitespace();
    let trimmed = whole.trim_matches(is_separator);
    let word = trimmed.rsplit(is_separator).next().unwrap_or_default();
    if word.is_empty() {
        return String::new();
    }
    let replace = |singular: &str, plural: &str| {
        let before = whole.strip_suffix(word).unwrap_or(whole);
        let stem = word.strip_suffix(singular).unwrap_or(word);
        format!("{before}{stem}{plural}")
    };
    if let Some(found) = words().find(|entry| entry.singular == whole) {
        return found.plural.to_owned();
    }
    if words().any(|entry| entry.has_plural(whole) || entry.has_plural(word)) {
        return whole.to_owned();
    }
    if let Some(found) = words().find(|entry| entry.singular == word) {
        return replace(word, found.plural);
    }
    let upper = word.to_uppercase();
    if ACRONYMS.split_whitespace().any(|acronym| acronym == upper) {
        // flect appends the plural in capitals instead of replacing the word.
        return match upper.strip_suffix('S') {
            Some(stem) => format!("{whole}{stem}Ses"),
            None => format!("{whole}s"),
        };
    }
    // flect inserts each word before the others, so that the last one has priority.
    let words = words().rev().filter(|entry| !entry.exact);
    let words = words.map(|entry| (entry.singular, entry.plural));
    let suffixes = SUFFIXES
        .split_whitespace()
        .filter_map(|suffix| suffix.split_once('/'));
    for (singular, plural) in words.chain(suffixes) {
        if word.ends_with(plural) {
            return whole.to_owned();
        }
        if word.ends_with(singular) {
            return replace(singular, plural);
        }
    }
    if word.ends_with('s') {
        whole.to_owned()
    } else {
        format!("{whole}s")
    }
}

/// Entry of [`WORDS`].
struct Word {
    singular: &'static str,
    plural: &'static str,
    /// Other plural.
    alternative: Option<&'static str>,
    /// Whether the plural can be the plural of another word only.
    one_way: bool,
    /// Whether the word does not apply as a suffix.
    exact: bool,
}

impl Word {
    fn has_plural(&self, word: &str) -> bool {
        !self.one_way && (self.plural == word || self.alternative == Some(word))
    }
}

fn words() -> impl DoubleEndedIterator<Item = Word> {
    WORDS.split_whitespace().filter_map(|entry| {
        let (one_way, entry) = flag(entry, '>');
        let (exact, entry) = flag(entry, '=');
        let (singular, plurals) = entry.split_once('/')?;
        let (plural, alternative) = match plurals.split_once('/') {
            Some((plural, alternative)) => (plural, Some(alternative)),
            None => (plurals, None),
        };
        Some(Word {
            singular,
            plural,
            alternative,
            one_way,
            exact,
        })
    })
}

fn flag(entry: &'static str, flag: char) -> (bool, &'static str) {
    match entry.strip_prefix(flag) {
        Some(entry) => (true, entry),
        None => (false, entry),
    }
}

#[cfg(test)]
mod tests;
