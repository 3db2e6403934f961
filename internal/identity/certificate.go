package identity

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

	"github.com/hdmlp/hdmlp/internal/inputfile"
)

// maxFile is the largest file that is read, in bytes.
const maxFile = 1 << 20

// Certificates carry no names that are compared, because nodes find each other under whatever
// address a launcher gives. Who the other side is, it proves by the job's secret, bound to the TLS
// session (Transcript): so not even a node that has a certificate can stand between two others.
//
// A configuration is for both roles and TLS 1.3 alone. It must not be changed, and may be used by
// many goroutines.

// DrawTLS makes TLS that rests on the job's secret alone: a key drawn for this process, in a
// certificate that says nothing and that is not checked. Rejected: a key derived from the secret,
// which both sides could compare; an unauthenticated client would be shown something to try guesses
// of the secret on.
func DrawTLS() (*tls.Config, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("draw a key for TLS: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "hdmlp"},
		// RFC 5280: it has no end
		NotBefore: time.Unix(0, 0), NotAfter: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		return nil, fmt.Errorf("make a certificate for TLS: %w", err)
	}
	c := base()
	c.Certificates = []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: private}}
	return c, nil
}

// LoadTLS makes TLS by certificates: this node's, and the authorities that must have signed every
// other node's. All files are PEM. It says at once if this node's own would be refused by a node
// with the same authorities. Errors name the key of the configuration.
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
		return nil, fmt.Errorf("tls_ca = %q: holds no certificate in PEM", ca)
	}
	own, err := parse(chain)
	if err != nil {
		return nil, fmt.Errorf("tls_cert = %q: %w", cert, err)
	}
	if err := verify(own, pool); err != nil {
		return nil, fmt.Errorf("tls_cert = %q is not good by tls_ca = %q: %w", cert, ca, err)
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

// base is what both kinds have in common. Names are not compared, so TLS's own check cannot be
// used: LoadTLS has one.
func base() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, InsecureSkipVerify: true, SessionTicketsDisabled: true,
		// small records are for pages that are shown while they load
		DynamicRecordSizingDisabled: true,
	}
}

func verify(chain []*x509.Certificate, authorities *x509.CertPool) error {
	if len(chain) == 0 {
		return errors.New("there is none")
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
	text, err := inputfile.Read(path, maxFile)
	if err != nil {
		return nil, fmt.Errorf("%s = %q: %w", key, path, err)
	}
	return text, nil
}
