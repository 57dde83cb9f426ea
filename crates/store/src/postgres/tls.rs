//! TLS to the server, with rustls. Certificates and keys are read from their files for each connection, so they can be changed
//! while the store is open.

use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};

/// How far the server's certificate is verified, as libpq's `sslmode` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServerTrust {
    /// Not encrypted: `disable`.
    Plain,
    /// Encrypted if the server can, whoever it is: `prefer`.
    Prefer,
    /// Encrypted, whoever the server is: `require`.
    Anyone,
    /// Its certificate must be signed by a known authority: `verify-ca`.
    Authority,
    /// It must also be for the name that was asked for: `verify-full`.
    Name,
}

impl ServerTrust {
    /// The trust of this `sslmode`.
    pub fn parse(mode: &str) -> Option<ServerTrust> {
        Some(match mode {
            "disable" => ServerTrust::Plain,
            "prefer" => ServerTrust::Prefer,
            "require" => ServerTrust::Anyone,
            "verify-ca" => ServerTrust::Authority,
            "verify-full" => ServerTrust::Name,
            _ => return None,
        })
    }
}

/// The files of an address.
#[derive(Clone, Debug, Default)]
pub(super) struct TlsFiles {
    /// The authorities that are trusted; the system's if there is none.
    pub roots: Option<PathBuf>,
    /// The client's certificate and its key.
    pub certificate: Option<PathBuf>,
    pub key: Option<PathBuf>,
}

/// A reason why there is no TLS.
#[derive(Debug, thiserror::Error)]
pub(super) enum TlsFault {
    #[error("{what} could not be read from {path}", path = path.display())]
    File {
        what: &'static str,
        path: PathBuf,
        #[source]
        source: tokio_rustls::rustls::pki_types::pem::Error,
    },
    #[error("the system has no certificates of authorities; name a file with sslrootcert")]
    NoRoots,
    #[error("sslcert and sslkey go together; one of them is missing")]
    HalfCertificate,
    #[error("{host:?} is not a name that a certificate can have")]
    Host { host: String },
    #[error("TLS cannot be used with these certificates")]
    Setup(#[from] Error),
    #[error("the server's certificate was not accepted; see sslmode and sslrootcert")]
    Handshake(#[source] io::Error),
}

/// Makes the connector for one connection.
pub(super) fn connector(trust: ServerTrust, files: &TlsFiles) -> Result<RustlsMaker, TlsFault> {
    let provider = Arc::new(ring::default_provider());
    let roots = match trust {
        ServerTrust::Plain | ServerTrust::Prefer | ServerTrust::Anyone => RootCertStore::empty(),
        ServerTrust::Authority | ServerTrust::Name => match &files.roots {
            Some(path) => roots_of(path)?,
            None => system_roots()?,
        },
    };
    let config =
        ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions()?;
    let config = match trust {
        ServerTrust::Name => config.with_root_certificates(roots),
        ServerTrust::Plain | ServerTrust::Prefer | ServerTrust::Anyone | ServerTrust::Authority => {
            let chain = (trust == ServerTrust::Authority).then(|| {
                WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build()
            });
            let chain = chain.transpose().map_err(|error| Error::General(error.to_string()))?;
            config.dangerous().with_custom_certificate_verifier(Arc::new(PartialVerifier { chain, provider }))
        }
    };
    let config = match (&files.certificate, &files.key) {
        (Some(certificate), Some(key)) => {
            let chain = certificates("the client's certificate", certificate)?;
            let key = PrivateKeyDer::from_pem_file(key).map_err(|source| TlsFault::File {
                what: "the client's key",
                path: key.clone(),
                source,
            })?;
            config.with_client_auth_cert(chain, key)?
        }
        (None, None) => config.with_no_client_auth(),
        (Some(_), None) | (None, Some(_)) => return Err(TlsFault::HalfCertificate),
    };
    Ok(RustlsMaker(Arc::new(config)))
}

fn certificates(what: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsFault> {
    let fault = |source| TlsFault::File { what, path: path.to_owned(), source };
    let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path).map_err(fault)?.collect();
    found.map_err(fault)
}

fn roots_of(path: &Path) -> Result<RootCertStore, TlsFault> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates("the certificates of the authorities", path)? {
        roots.add(certificate)?;
    }
    Ok(roots)
}

/// The system's authorities, read once: they are many.
fn system_roots() -> Result<RootCertStore, TlsFault> {
    static ROOTS: OnceLock<RootCertStore> = OnceLock::new();
    let roots = ROOTS.get_or_init(|| {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        roots
    });
    if roots.is_empty() { Err(TlsFault::NoRoots) } else { Ok(roots.clone()) }
}

/// Verifies less than everything: not the name, or (without `chain`) nothing at all.
#[derive(Debug)]
struct PartialVerifier {
    chain: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for PartialVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(chain) = &self.chain else { return Ok(ServerCertVerified::assertion()) };
        match chain.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            // The name is looked at last, when the chain is in order.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Makes TLS connections for tokio-postgres.
#[derive(Clone)]
pub(super) struct RustlsMaker(Arc<ClientConfig>);

/// A connection to be encrypted, to a server of this name.
pub(super) struct RustlsConnect {
    config: Arc<ClientConfig>,
    host: String,
}

/// An encrypted connection.
pub(super) struct EncryptedStream<S>(tokio_rustls::client::TlsStream<S>);

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> MakeTlsConnect<S> for RustlsMaker {
    type Stream = EncryptedStream<S>;
    type TlsConnect = RustlsConnect;
    type Error = TlsFault;

    fn make_tls_connect(&mut self, domain: &str) -> Result<RustlsConnect, TlsFault> {
        Ok(RustlsConnect { config: Arc::clone(&self.0), host: domain.to_owned() })
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for RustlsConnect {
    type Stream = EncryptedStream<S>;
    type Error = TlsFault;
    type Future = Pin<Box<dyn Future<Output = Result<EncryptedStream<S>, TlsFault>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move {
            let name = ServerName::try_from(self.host.clone());
            let name = name.map_err(|_| TlsFault::Host { host: self.host })?;
            let connected = TlsConnector::from(self.config).connect(name, stream).await;
            connected.map(EncryptedStream).map_err(TlsFault::Handshake)
        })
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for EncryptedStream<S> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for EncryptedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for EncryptedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
