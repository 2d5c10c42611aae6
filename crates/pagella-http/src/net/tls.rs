//! TLS: certificates from files, read again when they change. HTTP/2 is spoken here alone.

use std::sync::{Arc, PoisonError, RwLock};

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ServerConfig, crypto};

use crate::settings::Tls;

/// Certificates in use.
pub struct Certificates {
    files: Tls,
    now: RwLock<Arc<ServerConfig>>,
}

impl Certificates {
    /// Reads the files.
    pub fn load(files: Tls) -> Result<Self, String> {
        let now = RwLock::new(Arc::new(read(&files)?));
        Ok(Certificates { files, now })
    }

    /// The files.
    pub fn files(&self) -> &Tls {
        &self.files
    }

    /// Reads the files again; those that are wrong change nothing.
    pub fn reload(&self) -> Result<(), String> {
        let newer = Arc::new(read(&self.files)?);
        *self.now.write().unwrap_or_else(PoisonError::into_inner) = newer;
        Ok(())
    }

    /// What greets the next client.
    pub fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.now.read().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

fn read(files: &Tls) -> Result<ServerConfig, String> {
    let problem = |path: &std::path::Path, error: &dyn std::fmt::Display| {
        format!("{}: {error}", path.display())
    };
    let certificates = CertificateDer::pem_file_iter(&files.cert)
        .and_then(|list| list.collect::<Result<Vec<_>, _>>())
        .map_err(|error| problem(&files.cert, &error))?;
    if certificates.is_empty() {
        return Err(problem(&files.cert, &"there is no certificate in it"));
    }
    let key =
        PrivateKeyDer::from_pem_file(&files.key).map_err(|error| problem(&files.key, &error))?;
    let config = ServerConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_no_client_auth()
        .with_single_cert(certificates, key);
    let mut config = config.map_err(|error| problem(&files.cert, &error))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}
