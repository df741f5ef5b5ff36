//! Kubeconfig files for kubectl and other clients.

use crate::tls::ClientCertificate;
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use std::{
    fmt,
    fs::{self, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

/// Name of the cluster, the user and the context in the file.
const NAME: &str = "steersman";

/// Server address and credentials of a client.
#[derive(Clone, Debug)]
pub struct Kubeconfig {
    /// URL of the server, such as `https://127.0.0.1:6443`.
    pub server: String,
    /// Certificate of the authority that signed the server's. `None` for plain HTTP.
    pub ca_pem: Option<String>,
    /// Credentials of the client.
    pub credentials: Credentials,
}

/// Credentials of a client.
#[derive(Clone)]
pub enum Credentials {
    /// No credentials.
    None,
    /// A bearer token. kubectl does not send it over plain HTTP.
    Token(String),
    /// A client certificate.
    Certificate(ClientCertificate),
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Token(_) => "Token",
            Self::Certificate(_) => "Certificate",
        })
    }
}

impl Kubeconfig {
    /// Returns the content of the file: JSON, which is also YAML.
    pub fn to_yaml(&self) -> String {
        let mut cluster = json!({ "server": self.server });
        if let Some(ca) = &self.ca_pem {
            cluster["certificate-authority-data"] = encode(ca);
        }
        let user = match &self.credentials {
            Credentials::None => json!({}),
            Credentials::Token(token) => json!({ "token": token }),
            Credentials::Certificate(client) => json!({
                "client-certificate-data": encode(&client.certificate_pem),
                "client-key-data": encode(&client.key_pem),
            }),
        };
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{ "name": NAME, "cluster": cluster }],
            "users": [{ "name": NAME, "user": user }],
            "contexts": [{ "name": NAME, "context": { "cluster": NAME, "user": NAME, "namespace": "default" } }],
            "current-context": NAME,
        });
        format!("{config:#}\n")
    }

    /// Writes the file atomically, readable only by its owner.
    ///
    /// Errors: the directory does not exist, or the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), KubeconfigWriteError> {
        let failed = |error| KubeconfigWriteError {
            path: path.into(),
            error,
        };
        // A missing directory is not created, since it is more likely a typing error.
        let directory = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let Some(name) = path.file_name() else {
            return Err(failed(io::ErrorKind::IsADirectory.into()));
        };
        let mut temporary = std::ffi::OsString::from(".");
        temporary.push(name);
        temporary.push(format!(".{:016x}", rand::random::<u64>()));
        let temporary = directory.join(temporary);
        let written =
            write_private(&temporary, &self.to_yaml()).and_then(|()| fs::rename(&temporary, path));
        if written.is_err() {
            // The first error is reported.
            let _ = fs::remove_file(&temporary);
        }
        written.map_err(failed)
    }
}

/// A kubeconfig in the system's temporary directory, removed on drop.
#[derive(Debug)]
pub struct TemporaryKubeconfig {
    path: PathBuf,
}

impl TemporaryKubeconfig {
    /// Writes the file. Its name contains the process id, so a process can have only one.
    pub fn write(kubeconfig: &Kubeconfig) -> Result<Self, KubeconfigWriteError> {
        let path =
            std::env::temp_dir().join(format!("steersman-{}.kubeconfig", std::process::id()));
        kubeconfig.write(&path)?;
        Ok(Self { path })
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for TemporaryKubeconfig {
    fn drop(&mut self) {
        // The file may have been removed already.
        let _ = fs::remove_file(&self.path);
    }
}

fn encode(pem: &str) -> Value {
    STANDARD.encode(pem).into()
}

fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)?.write_all(text.as_bytes())
}

/// Error of writing a kubeconfig.
#[derive(Debug)]
pub struct KubeconfigWriteError {
    path: PathBuf,
    error: io::Error,
}

impl fmt::Display for KubeconfigWriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot write the kubeconfig {}: ", self.path.display())?;
        match self.error.kind() {
            io::ErrorKind::NotFound => {
                f.write_str("its directory does not exist; create it or choose another path")
            }
            _ => write!(f, "{}", self.error),
        }
    }
}

impl std::error::Error for KubeconfigWriteError {}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::config::Kubeconfig as Read;

    fn example(credentials: Credentials) -> Kubeconfig {
        Kubeconfig {
            server: "https://127.0.0.1:6443".into(),
            ca_pem: Some("ca".into()),
            credentials,
        }
    }

    /// A directory that is removed on drop.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new() -> Self {
            let path =
                std::env::temp_dir().join(format!("steersman-{:016x}", rand::random::<u64>()));
            fs::create_dir(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn kube_reads_server_authority_and_token() {
        let read =
            Read::from_yaml(&example(Credentials::Token("t0ps3cret".into())).to_yaml()).unwrap();
        assert_eq!(read.current_context.as_deref(), Some(NAME));
        let cluster = read.clusters[0].cluster.clone().unwrap();
        assert_eq!(cluster.server.as_deref(), Some("https://127.0.0.1:6443"));
        assert_eq!(cluster.certificate_authority_data.as_deref(), Some("Y2E="));
        assert!(
            read.auth_infos[0]
                .auth_info
                .as_ref()
                .unwrap()
                .token
                .is_some()
        );
    }

    #[test]
    fn a_file_is_replaced_whole_and_only_its_owner_may_read_it() {
        let scratch = Scratch::new();
        let path = scratch.0.join("kubeconfig");
        fs::write(&path, "something longer that was there before ".repeat(99)).unwrap();
        let config = example(Credentials::None);
        config.write(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), config.to_yaml());
        assert_eq!(
            fs::read_dir(&scratch.0).unwrap().count(),
            1,
            "the temporary file was not removed"
        );
        #[cfg(unix)]
        {
            let mode = std::os::unix::fs::PermissionsExt::mode(
                &fs::metadata(&path).unwrap().permissions(),
            );
            assert_eq!(mode & 0o777, 0o600);
        }
    }

    #[test]
    fn a_missing_directory_is_reported_and_not_created() {
        let scratch = Scratch::new();
        let error = example(Credentials::None)
            .write(&scratch.0.join("missing/kubeconfig"))
            .unwrap_err();
        assert!(
            error
                .to_string()
                .ends_with("its directory does not exist; create it or choose another path"),
            "{error}"
        );
        assert!(!scratch.0.join("missing").exists());
    }

    #[test]
    fn a_failed_write_leaves_nothing_behind() {
        let scratch = Scratch::new();
        fs::create_dir(scratch.0.join("taken")).unwrap();
        example(Credentials::None)
            .write(&scratch.0.join("taken"))
            .unwrap_err();
        assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 1);
    }

    #[test]
    fn secrets_are_not_shown_by_debug() {
        assert!(
            !format!("{:?}", example(Credentials::Token("t0ps3cret".into()))).contains("t0ps3cret")
        );
    }
}
