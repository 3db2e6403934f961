package auth

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"time"

	"github.com/hdmlp/hdmlp/internal/lib/files"
)

// maxFile is the size limit of the files that are read, in bytes.
const maxFile = 1 << 20

// The names in certificates are not checked, because nodes reach each other at any address that a
// launcher provides. The other side proves its identity by the job's secret, bound to the TLS
// session (Transcript), so even a node with a valid certificate cannot relay between two others.
//
// A configuration is for clients and servers, and for TLS 1.3 only. It must not be modified, and is
// safe for concurrent use.

// DrawTLS returns a TLS configuration that relies on the job's secret alone: a key generated for
// this process, in a certificate without information that is not verified. Rejected: a key derived
// from the secret, which both sides could compare; an unauthenticated client would see a value on
// which to test guesses of the secret.
func DrawTLS() (*tls.Config, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate a key for TLS: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "hdmlp"},
		// RFC 5280: no expiry
		NotBefore: time.Unix(0, 0), NotAfter: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		return nil, fmt.Errorf("create a certificate for TLS: %w", err)
	}
	c := base()
	c.Certificates = []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: private}}
	return c, nil
}

// LoadTLS returns a TLS configuration with certificates: this node's, and the authorities that must
// have signed the certificate of every other node. All files are PEM. It fails if nodes with the
// same authorities would reject this node's certificate. Errors name the configuration key.
func LoadTLS(cert, key, ca string) (*tls.Config, error) {
	chain, err := read("tls_cert", cert)
	if err != nil {
		return nil, err
	}
	private, err := read("tls_key", key)
	if err != nil {
		return nil, err
	}
	authorities, err := read("tls_ca", ca)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(chain, private)
	if err != nil {
		return nil, fmt.Errorf("tls_cert = %q, tls_key = %q: %w", cert, key, err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(authorities) {
		return nil, fmt.Errorf("tls_ca = %q: contains no PEM certificate", ca)
	}
	own, err := parse(chain)
	if err != nil {
		return nil, fmt.Errorf("tls_cert = %q: %w", cert, err)
	}
	if err := verify(own, pool); err != nil {
		return nil, fmt.Errorf("tls_cert = %q is not trusted by tls_ca = %q: %w", cert, ca, err)
	}
	c := base()
	c.Certificates = []tls.Certificate{pair}
	c.ClientAuth = tls.RequireAnyClientCert
	c.VerifyConnection = func(s tls.ConnectionState) error {
		if err := verify(s.PeerCertificates, pool); err != nil {
			return &tls.CertificateVerificationError{
				UnverifiedCertificates: s.PeerCertificates,
				Err:                    err,
			}
		}
		return nil
	}
	return c, nil
}

// base returns what both configurations share. Since names are not checked, TLS's own verification
// cannot be used; LoadTLS sets its own.
func base() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, InsecureSkipVerify: true, SessionTicketsDisabled: true,
		// small records only benefit pages that are rendered while they load
		DynamicRecordSizingDisabled: true,
	}
}

func verify(chain []*x509.Certificate, authorities *x509.CertPool) error {
	if len(chain) == 0 {
		return errors.New("no certificate")
	}
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{
		Roots:         authorities,
		Intermediates: between,
		KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	})
	return err
}

func parse(text []byte) (chain []*x509.Certificate, err error) {
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return chain, nil
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		chain = append(chain, c)
	}
}

func read(key, path string) ([]byte, error) {
	text, err := files.Read(path, maxFile)
	if err != nil {
		return nil, fmt.Errorf("%s = %q: %w", key, path, err)
	}
	return text, nil
}
