//! An authority of its own for each test, and certificates that it signs, made by openssl. Knows nothing of who shows them.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU64, Ordering},
};
use tempfile::TempDir;

/// Signs certificates, in a folder that goes when this is dropped.
pub struct Authority {
    folder: TempDir,
}

/// A certificate and its key.
#[derive(Debug, Clone)]
pub struct Issued {
    /// Where the certificate is.
    pub certificate: PathBuf,
    /// Where its private key is.
    pub key: PathBuf,
}

impl Authority {
    /// One that nobody knows yet.
    #[must_use]
    pub fn new() -> Authority {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        Authority::named(&format!("authority {}", NUMBER.fetch_add(1, Ordering::Relaxed)))
    }

    /// One of this name, which others may have.
    #[must_use]
    pub fn named(name: &str) -> Authority {
        let authority = Authority { folder: tempfile::tempdir().expect("make a folder") };
        let settings = "basicConstraints = critical,CA:TRUE\nkeyUsage = critical,keyCertSign";
        let config = authority.config("authority", name, settings);
        openssl(
            &["req", "-x509", "-days", "30", "-nodes"],
            &authority.new_key("authority"),
            &[("-config", &config), ("-out", &authority.certificate())],
        );
        authority
    }

    /// Where its certificate is.
    #[must_use]
    pub fn certificate(&self) -> PathBuf {
        self.at("authority.pem")
    }

    /// A certificate for hosts as openssl writes them (`DNS:n1.example`, `IP:127.0.0.1`), valid for so many days; in files of
    /// this name.
    #[must_use]
    pub fn issue(&self, name: &str, hosts: &[&str], days: u32) -> Issued {
        self.issue_with(name, &format!("subjectAltName = {}", hosts.join(",")), days)
    }

    /// The same with extensions as openssl writes them.
    #[must_use]
    pub fn issue_with(&self, name: &str, extensions: &str, days: u32) -> Issued {
        let (config, request) = (self.config(name, name, extensions), self.at(&format!("{name}.csr")));
        let issued =
            Issued { certificate: self.at(&format!("{name}.pem")), key: self.at(&format!("{name}.key")) };
        openssl(&["req", "-new", "-nodes"], &self.new_key(name), &[("-config", &config), ("-out", &request)]);
        openssl(
            &["x509", "-req", "-days", &days.to_string(), "-extensions", "extensions"],
            &[],
            &[
                ("-in", &request),
                ("-extfile", &config),
                ("-CA", &self.certificate()),
                ("-CAkey", &self.at("authority.key")),
                ("-out", &issued.certificate),
            ],
        );
        fs::set_permissions(&issued.key, fs::Permissions::from_mode(0o600)).expect("close the key");
        issued
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn config(&self, file: &str, name: &str, extensions: &str) -> PathBuf {
        let file = self.at(&format!("{file}.cnf"));
        let text = format!(
            "[req]\nprompt = no\ndistinguished_name = name\nx509_extensions = extensions\n[name]\nCN = {name}\n\
             [extensions]\n{extensions}\n"
        );
        fs::write(&file, text).expect("write a file");
        file
    }

    fn new_key(&self, name: &str) -> [String; 6] {
        let file = self.at(&format!("{name}.key"));
        let file = file.to_str().expect("folders for tests have plain names");
        ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-keyout", file].map(str::to_owned)
    }
}

impl Default for Authority {
    fn default() -> Authority {
        Authority::new()
    }
}

fn openssl(words: &[&str], more: &[String], files: &[(&str, &Path)]) {
    let mut command = Command::new("openssl");
    command.args(words).args(more);
    for (flag, file) in files {
        command.arg(flag).arg(file);
    }
    let done = command.output().expect("openssl is there: apt install openssl");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}
