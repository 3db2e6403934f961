package auth

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// authority signs certificates.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  string
}

func newAuthority(t *testing.T, by *authority) *authority {
	a := &authority{t: t}
	a.cert, a.key, a.pem = sign(t, by, &x509.Certificate{
		Subject: pkix.Name{CommonName: "an authority"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign,
		NotAfter: time.Now().Add(time.Hour),
	})
	return a
}

func sign(t *testing.T, by *authority,
	template *x509.Certificate,
) (*x509.Certificate, *ecdsa.PrivateKey, string) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	parent, signer := template, key
	if by != nil {
		parent, signer = by.cert, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return c, key, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// node writes a node's files: its certificate followed by those in chain, its key, and the
// authorities that it trusts.
func (a *authority) node(until time.Time, trusted string, chain ...string) (cert, key, ca string) {
	_, private, text := sign(a.t, a,
		&x509.Certificate{
			Subject:  pkix.Name{CommonName: "a node"},
			DNSNames: []string{"somewhere.else"},
			NotAfter: until,
		})
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		a.t.Fatal(err)
	}
	dir := a.t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			a.t.Fatal(err)
		}
		return path
	}
	return write("cert.pem", text+strings.Join(chain, "")),
		write("key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))),
		write("ca.pem", trusted)
}

// talk runs a TLS handshake and sends a word, and returns the error of either side.
func talk(t *testing.T, server, client *tls.Config) (serverSays, clientSays error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	done := make(chan error, 1)
	go func() {
		c, err := ln.Accept()
		if err != nil {
			done <- err
			return
		}
		s := tls.Server(c, server)
		defer s.Close()
		if err = s.Handshake(); err == nil {
			_, err = s.Write([]byte("word"))
		}
		done <- err
	}()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s := tls.Client(c, client)
	defer s.Close()
	_, clientSays = io.ReadFull(s, make([]byte, 4))
	if v := s.ConnectionState().Version; clientSays == nil && v != tls.VersionTLS13 {
		t.Errorf("version %x", v)
	}
	return <-done, clientSays
}

func TestDrawTLSNeedsNoFiles(t *testing.T) {
	one, err := DrawTLS()
	if err != nil {
		t.Fatal(err)
	}
	two, err := DrawTLS()
	if err != nil {
		t.Fatal(err)
	}
	if a, b := talk(t, one, two); a != nil || b != nil {
		t.Error(a, b)
	}
}

func TestOnlyTrustedCertificatesAreAccepted(t *testing.T) {
	later := time.Now().Add(time.Hour)
	root, other := newAuthority(t, nil), newAuthority(t, nil)
	between := newAuthority(t, root)
	files := func(a *authority, trusted string, chain ...string) *tls.Config {
		c, err := LoadTLS(a.node(later, trusted, chain...))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	one, two := files(root, root.pem), files(between, root.pem, between.pem)
	if a, b := talk(t, one, two); a != nil || b != nil {
		t.Errorf("of one authority: %v, %v", a, b)
	}
	var refused *tls.CertificateVerificationError
	strange := files(other, other.pem)
	if a, b := talk(t, one, strange); !errors.As(b, &refused) || a == nil {
		t.Errorf("the client trusts another authority: %v, %v", a, b)
	}
	trusting := files(other, other.pem+root.pem)
	if a, b := talk(t, one, trusting); !errors.As(a, &refused) || b == nil {
		t.Errorf("the client's certificate is of another authority: %v, %v", a, b)
	}
	drawn, err := DrawTLS()
	if err != nil {
		t.Fatal(err)
	}
	if a, b := talk(t, one, &tls.Config{InsecureSkipVerify: true}); a == nil || b == nil {
		t.Errorf("a client without a certificate: %v, %v", a, b)
	}
	if a, b := talk(t, drawn, one); a == nil || !errors.As(b, &refused) {
		t.Errorf("a server with a self-signed certificate: %v, %v", a, b)
	}
}

// TestUnusableFilesAreNamed: LoadTLS reports what is wrong, by the configuration's key.
func TestUnusableFilesAreNamed(t *testing.T) {
	root, other := newAuthority(t, nil), newAuthority(t, nil)
	cert, key, ca := root.node(time.Now().Add(time.Hour), root.pem)
	_, otherKey, otherCA := other.node(time.Now().Add(time.Hour), other.pem)
	expired, expiredKey, _ := root.node(time.Now().Add(-time.Minute), root.pem)
	text, err := os.ReadFile(cert)
	if err != nil {
		t.Fatal(err)
	}
	damaged := filepath.Join(t.TempDir(), "damaged.pem")
	text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte{1}})...)
	if err := os.WriteFile(damaged, text, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		cert, key, ca string
		want          []string
	}{
		"no file of authorities":   {cert, key, ca + "x", []string{"tls_ca = ", "no such file"}},
		"damaged after the node's": {damaged, key, ca, []string{"tls_cert = ", "malformed"}},
		"missing":                  {cert + "x", key, ca, []string{"tls_cert = ", "no such file"}},
		"a directory": {
			cert, filepath.Dir(key), ca,
			[]string{"tls_key = ", "not a regular file"},
		},
		"another's key":  {cert, otherKey, ca, []string{"tls_key = ", "does not match"}},
		"no certificate": {key, key, ca, []string{"tls_cert = ", "PEM"}},
		"no authority":   {cert, key, key, []string{"tls_ca = ", "contains no PEM certificate"}},
		"another authority": {
			cert, key, otherCA,
			[]string{"tls_cert = ", "is not trusted by tls_ca = ", "unknown authority"},
		},
		"expired": {expired, expiredKey, ca, []string{"tls_cert = ", "expired"}},
	} {
		_, err := LoadTLS(c.cert, c.key, c.ca)
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v does not say %q", name, err, want)
			}
		}
	}
}

// TestKeyInTheCertificatesFile: one file may have both.
func TestKeyInTheCertificatesFile(t *testing.T) {
	root := newAuthority(t, nil)
	cert, key, ca := root.node(time.Now().Add(time.Hour), root.pem)
	both := filepath.Join(t.TempDir(), "both.pem")
	var text []byte
	for _, name := range []string{key, cert} {
		part, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		text = append(text, part...)
	}
	if err := os.WriteFile(both, text, 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := LoadTLS(both, both, ca)
	if err != nil {
		t.Fatal(err)
	}
	if a, b := talk(t, c, c); a != nil || b != nil {
		t.Error(a, b)
	}
}

// TestNoCertificateIsNotTrusted: whatever TLS has required before.
func TestNoCertificateIsNotTrusted(t *testing.T) {
	root := newAuthority(t, nil)
	c, err := LoadTLS(root.node(time.Now().Add(time.Hour), root.pem))
	if err != nil {
		t.Fatal(err)
	}
	var refused *tls.CertificateVerificationError
	if err := c.VerifyConnection(tls.ConnectionState{}); !errors.As(err, &refused) {
		t.Errorf("accepted: %v", err)
	}
}

// TestOnlyTLS13WithoutResumption: a session that is resumed would not check certificates again.
func TestOnlyTLS13WithoutResumption(t *testing.T) {
	root := newAuthority(t, nil)
	loaded, err := LoadTLS(root.node(time.Now().Add(time.Hour), root.pem))
	if err != nil {
		t.Fatal(err)
	}
	drawn, err := DrawTLS()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []*tls.Config{loaded, drawn} {
		if c.MinVersion != tls.VersionTLS13 || !c.SessionTicketsDisabled {
			t.Errorf("version %x or later; no session tickets: %v", c.MinVersion,
				c.SessionTicketsDisabled)
		}
		old := &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12}
		if a, b := talk(t, c, old); a == nil || b == nil {
			t.Errorf("a client of TLS 1.2: %v, %v", a, b)
		}
	}
}
