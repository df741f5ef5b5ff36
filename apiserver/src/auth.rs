//! Who is asking: bearer tokens, client certificates, or a name given in-process.

use crate::{
    kubeconfig::Credentials,
    status::{Details, Failure, Reason, Result, qualified},
};
use http::{header::AUTHORIZATION, request::Parts};
use std::{fmt, hint::black_box, sync::Arc};

const AUTHENTICATED: &str = "system:authenticated";
const UNAUTHENTICATED: &str = "system:unauthenticated";

/// Who is asking.
///
/// A request that has one among its extensions is asked by them: in-process that makes a client somebody else, and over
/// TLS it comes from the client's certificate. Nothing that is sent over a socket gets there otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Their name: `alice`, `system:serviceaccount:default:web`.
    pub user: String,
    /// Tells apart those who had the same name at different times. Often empty.
    pub uid: String,
    /// What they belong to. Whoever is known belongs to `system:authenticated`.
    pub groups: Vec<String>,
}

impl Identity {
    /// Somebody known.
    pub fn new<G: Into<String>>(
        user: impl Into<String>,
        uid: impl Into<String>,
        groups: impl IntoIterator<Item = G>,
    ) -> Self {
        let mut groups: Vec<String> = groups.into_iter().map(Into::into).collect();
        if !groups.iter().any(|group| group == AUTHENTICATED) {
            groups.push(AUTHENTICATED.into());
        }
        Self { user: user.into(), uid: uid.into(), groups }
    }

    /// `system:admin`, of `system:masters`: may do everything.
    pub fn admin() -> Self {
        Self::new("system:admin", "", ["system:masters"])
    }

    /// `system:anonymous`: nobody known.
    pub fn anonymous() -> Self {
        Self { user: "system:anonymous".into(), uid: String::new(), groups: vec![UNAUTHENTICATED.into()] }
    }

    /// Nobody known.
    pub fn is_anonymous(&self) -> bool {
        self.groups.iter().any(|group| group == UNAUTHENTICATED)
    }
}

/// Finds out who is asking. Without tokens every caller is [admin](Identity::admin).
#[derive(Clone, Default)]
pub struct Authenticator {
    tokens: Option<Arc<[(Token, Identity)]>>,
}

/// A secret: it cannot be shown, and how long comparing takes says nothing of it but its length.
struct Token(String);

impl Token {
    fn is(&self, other: &str) -> bool {
        let (own, other) = (self.0.as_bytes(), other.as_bytes());
        let differ = own.iter().zip(other).fold(0, |differ, (own, other)| black_box(differ | (own ^ other)));
        own.len() == other.len() && differ == 0
    }
}

impl fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tokens = self.tokens.as_ref().map(|tokens| tokens.len());
        f.debug_struct("Authenticator").field("tokens", &tokens).finish()
    }
}

impl Authenticator {
    /// Knows the tokens of a real server's `--token-auth-file`: lines of `token,user,uid,"group1,group2"`.
    ///
    /// As there, the groups may be missing, columns after them mean nothing, lines with an empty token are skipped, and
    /// of two lines with one token the later one counts.
    pub fn from_token_file(text: &str) -> Result<Self, TokenFileError> {
        let mut tokens: Vec<(Token, Identity)> = Vec::new();
        for (line, record) in text.lines().enumerate().filter(|(_, record)| !record.is_empty()) {
            let wrong = |what| TokenFileError { line: line + 1, what };
            let fields = fields(record).map_err(wrong)?;
            let [token, user, uid, rest @ ..] = &fields[..] else {
                return Err(wrong("fewer than three columns: a line is `token,user,uid,\"group1,group2\"`"));
            };
            let groups = rest.first().map(|groups| groups.split(',')).into_iter().flatten();
            let identity = Identity::new(user, uid, groups.filter(|group| !group.is_empty()));
            if !token.is_empty() {
                tokens.push((Token(token.clone()), identity));
            }
        }
        Ok(Self { tokens: Some(tokens.into()) })
    }

    /// Creates an authenticator with one random token, which is the admin's, and returns the token as credentials.
    pub fn with_random_token() -> (Self, Credentials) {
        let token = format!("{:032x}{:032x}", rand::random::<u128>(), rand::random::<u128>());
        let known = (Token(token.clone()), Identity::admin());
        (Self { tokens: Some([known].into()) }, Credentials::Token(token))
    }

    /// Callers have to say who they are.
    pub fn is_configured(&self) -> bool {
        self.tokens.is_some()
    }

    /// Who sent this request: the [`Identity`] among its extensions, or whose token it carries. A token that nobody has
    /// is 401.
    pub(crate) fn authenticate(&self, request: &Parts) -> Result<Identity> {
        if let Some(identity) = request.extensions.get::<Identity>() {
            return Ok(identity.clone());
        }
        let Some(tokens) = &self.tokens else { return Ok(Identity::admin()) };
        let Some(presented) = bearer(request) else { return Ok(Identity::anonymous()) };
        // All are compared, whichever it is: the last one that fits counts.
        let known =
            tokens.iter().fold(None, |found, (token, identity)| token.is(presented).then_some(identity).or(found));
        known.cloned().ok_or_else(|| Failure::new(401, Reason::Unauthorized, "Unauthorized"))
    }
}

/// The bearer token. An empty one, or another scheme, is none.
fn bearer(request: &Parts) -> Option<&str> {
    // A header that is not text holds no token that could be known, but is an attempt: let it fail.
    let header = request.headers.get(AUTHORIZATION)?.to_str().unwrap_or("Bearer \u{fffd}");
    let (scheme, token) = header.split_once(' ')?;
    let token = token.split(' ').next().filter(|token| !token.is_empty())?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token)
}

/// A token file that cannot be read. Says where, and never shows what is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenFileError {
    /// From 1.
    pub line: usize,
    what: &'static str,
}

impl fmt::Display for TokenFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {} of the token file: {}", self.line, self.what)
    }
}

impl std::error::Error for TokenFileError {}

/// The fields of a line of CSV.
fn fields(line: &str) -> Result<Vec<String>, &'static str> {
    let mut fields = Vec::new();
    let mut rest = line;
    loop {
        let mut field = String::new();
        if let Some(quoted) = rest.strip_prefix('"') {
            rest = quoted;
            loop {
                let (text, after) = rest.split_once('"').ok_or("a quote is not closed")?;
                field.push_str(text);
                rest = after;
                // Two quotes stand for one.
                let Some(more) = after.strip_prefix('"') else { break };
                field.push('"');
                rest = more;
            }
        } else {
            let (text, after) = rest.split_at(rest.find(',').unwrap_or(rest.len()));
            if text.contains('"') {
                return Err("a quote inside a field that does not begin with one");
            }
            field.push_str(text);
            rest = after;
        }
        fields.push(field);
        match rest.strip_prefix(',') {
            Some(more) => rest = more,
            None if rest.is_empty() => return Ok(fields),
            None => return Err("text between a closing quote and the next comma"),
        }
    }
}

/// 403: `identity` may not do this. `resource` may have its subresource with it, `widgets/status`; without a `namespace`
/// it is about the cluster.
pub(crate) fn forbidden_for(
    identity: &Identity,
    verb: &str,
    group: &str,
    resource: &str,
    name: &str,
    namespace: &str,
) -> Box<Failure> {
    let place =
        if namespace.is_empty() { "at the cluster scope".into() } else { format!("in the namespace \"{namespace}\"") };
    let user = &identity.user;
    let why = format!("User \"{user}\" cannot {verb} resource \"{resource}\" in API group \"{group}\" {place}");
    let plural = resource.split_once('/').map_or(resource, |(plural, _)| plural);
    let mut failure = Failure::forbidden(group, plural, name, &why);
    if name.is_empty() {
        failure.message = format!("{} is forbidden: {why}", qualified(group, plural));
    }
    failure
}

/// 403: `identity` may not do this with what is no resource.
pub(crate) fn forbidden_path_for(identity: &Identity, verb: &str, path: &str) -> Box<Failure> {
    let message = format!("forbidden: User \"{}\" cannot {verb} path \"{path}\"", identity.user);
    Failure::new(403, Reason::Forbidden, message).about(Details::default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    const FILE: &str = "t0ps3cret,alice,u1,\"dev,ops\"\r\n\nother,bob,u2\nquo\"\"ted,x,y\n";

    fn request(authorization: &[u8]) -> Parts {
        Request::builder().header(AUTHORIZATION, authorization).body(()).unwrap().into_parts().0
    }

    fn none() -> Parts {
        Request::new(()).into_parts().0
    }

    fn read(text: &str) -> Authenticator {
        Authenticator::from_token_file(text).unwrap()
    }

    #[test]
    fn a_known_token_is_its_user_with_groups_and_the_one_of_the_known() {
        let auth = read("t0ps3cret,alice,u1,\"dev,ops\",ignored\r\n\nother,bob,u2\n");
        let alice = auth.authenticate(&request(b"bearer t0ps3cret")).unwrap();
        assert_eq!(alice, Identity::new("alice", "u1", ["dev", "ops"]));
        assert_eq!(alice.groups, ["dev", "ops", "system:authenticated"]);
        assert_eq!(auth.authenticate(&request(b"Bearer other")).unwrap().groups, ["system:authenticated"]);
    }

    #[test]
    fn an_unknown_token_is_401_and_none_is_anonymous() {
        let auth = read("t0ps3cret,alice,u1\n");
        for header in [&b"Bearer t0ps3cre"[..], b"Bearer t0ps3crets", b"Bearer T0ps3cret", b"Bearer \xff"] {
            let failure = auth.authenticate(&request(header)).unwrap_err();
            assert_eq!((failure.code, failure.reason), (401, Some(Reason::Unauthorized)));
            assert_eq!(failure.message, "Unauthorized");
        }
        for parts in [none(), request(b"Basic YTpi"), request(b"Bearer "), request(b"Bearer")] {
            let anonymous = auth.authenticate(&parts).unwrap();
            assert_eq!(anonymous.groups, ["system:unauthenticated"]);
            assert!(anonymous.is_anonymous() && anonymous.user == "system:anonymous");
        }
    }

    #[test]
    fn without_tokens_everybody_is_admin() {
        let auth = Authenticator::default();
        assert_eq!(auth.authenticate(&none()).unwrap(), Identity::admin());
        assert_eq!(auth.authenticate(&request(b"Bearer x")).unwrap(), Identity::admin());
        assert!(!auth.is_configured() && read("").is_configured() && !Identity::admin().is_anonymous());
    }

    #[test]
    fn a_random_token_is_the_admins_and_another_one_each_time() {
        let [(auth, Credentials::Token(token)), (_, Credentials::Token(other))] =
            [(); 2].map(|()| Authenticator::with_random_token())
        else {
            panic!("the credentials are a token")
        };
        assert!(token.len() == 64 && token != other && auth.is_configured());
        assert_eq!(auth.authenticate(&request(format!("Bearer {token}").as_bytes())).unwrap(), Identity::admin());
        assert_eq!(auth.authenticate(&request(format!("Bearer {other}").as_bytes())).unwrap_err().code, 401);
    }

    #[test]
    fn an_identity_among_the_extensions_comes_before_any_token() {
        let mut parts = request(b"Bearer wrong");
        let carol = Identity::new("carol", "", ["dev"]);
        parts.extensions.insert(carol.clone());
        assert_eq!(read("t,alice,u").authenticate(&parts).unwrap(), carol);
    }

    #[test]
    fn of_two_lines_with_one_token_the_later_counts_and_an_empty_token_is_skipped() {
        let auth = read("t,alice,1\n,nobody,2\nt,bob,3\n");
        assert_eq!(auth.authenticate(&request(b"Bearer t")).unwrap().user, "bob");
    }

    #[test]
    fn quotes_hold_commas_and_quotes() {
        assert_eq!(fields(r#""a,b","say ""x""",,c"#).unwrap(), ["a,b", r#"say "x""#, "", "c"]);
    }

    #[test]
    fn a_bad_line_is_named_and_its_token_is_not_shown() {
        for (text, line, told) in [
            (FILE, 4, "a quote inside a field"),
            ("t0ps3cret,alice\n", 1, "fewer than three columns"),
            ("a,b,c\n\"t0ps3cret,alice,u1\n", 2, "not closed"),
            ("\"t0ps3cret\"x,alice,u1\n", 1, "text between"),
        ] {
            let error = Authenticator::from_token_file(text).unwrap_err();
            let shown = format!("{error} {error:?}");
            assert!(error.line == line && shown.contains(told) && !shown.contains("t0ps3cret"), "{shown}");
        }
    }

    #[test]
    fn tokens_are_not_shown_by_debug() {
        assert_eq!(format!("{:?}", read("t0ps3cret,alice,u1\n")), "Authenticator { tokens: Some(1) }");
    }

    #[test]
    fn what_is_forbidden_is_told_in_the_real_servers_words() {
        let alice = Identity::new("alice", "", [""; 0]);
        let failure = forbidden_for(&alice, "get", "", "configmaps", "x", "g1");
        assert_eq!(
            failure.message,
            "configmaps \"x\" is forbidden: User \"alice\" cannot get resource \"configmaps\" in API group \"\" in the \
             namespace \"g1\""
        );
        assert_eq!((failure.code, failure.reason), (403, Some(Reason::Forbidden)));
        assert_eq!(
            forbidden_for(&Identity::anonymous(), "list", "example.com", "widgets/status", "", "").message,
            "widgets.example.com is forbidden: User \"system:anonymous\" cannot list resource \"widgets/status\" in API \
             group \"example.com\" at the cluster scope"
        );
    }
}
