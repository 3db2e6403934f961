// Package web implements objects.Objects over a web server: the objects are what it serves below a
// URL. A web server cannot be listed, so that the names of the objects have to be known.
package web

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http/httpproxy"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/source/objects"
	"github.com/hdmlp/hdmlp/internal/source/objects/remote"
)

// Network is how a process reaches servers: the environment of the job's, and not of the daemon's.
type Network struct {
	// Proxy returns the proxy for a request; nil: none is used.
	Proxy func(*http.Request) (*url.URL, error)
	// Authorities are trusted besides those of the system; nil: none.
	Authorities *x509.CertPool
}

// NetworkOf returns the network of an Access.
func NetworkOf(a *source.Access) (n Network, err error) {
	c := httpproxy.Config{HTTPProxy: a.HTTPProxy, HTTPSProxy: a.HTTPSProxy, NoProxy: a.NoProxy}
	proxy := c.ProxyFunc()
	n.Proxy = func(r *http.Request) (*url.URL, error) { return proxy(r.URL) }
	if a.Authorities == "" {
		return n, nil
	}
	if n.Authorities, err = x509.SystemCertPool(); err != nil {
		n.Authorities = x509.NewCertPool()
	}
	if !n.Authorities.AppendCertsFromPEM([]byte(a.Authorities)) {
		return n, errors.New("the file of certificates (AWS_CA_BUNDLE or SSL_CERT_FILE) has none in " +
			"PEM")
	}
	return n, nil
}

// Place returns the place of URLs http:// and https://.
func Place() objects.Place {
	return objects.Place{
		Schemes: []string{"https", "http"},
		Open: func(url string, v *source.View) (objects.Objects, error) {
			n, err := NetworkOf(v.Access)
			if err != nil {
				return nil, err
			}
			s, err := New(url, n)
			if err != nil {
				return nil, err
			}
			return remote.New(s, remote.Options{}), nil
		},
	}
}

// Connections that are kept open to a server between requests: more than requests are in flight.
const idleConnections = 512

// Transport returns what makes requests over a network, over connections of HTTP/1.1: with one of
// HTTP/2 all requests would share the speed of one connection.
func (n Network) Transport() *http.Transport {
	dial := net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}
	return &http.Transport{
		Proxy:                 n.Proxy,
		DialContext:           dial.DialContext,
		TLSClientConfig:       &tls.Config{RootCAs: n.Authorities, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:   10 * time.Second,
		ResponseHeaderTimeout: remote.DefaultQuiet,
		MaxIdleConns:          idleConnections,
		MaxIdleConnsPerHost:   idleConnections,
		IdleConnTimeout:       90 * time.Second,
		DisableCompression:    true, // ranges are of the bytes as they are stored
		TLSNextProto:          map[string]func(string, *tls.Conn) http.RoundTripper{},
	}
}

// Server is what a web server serves below a URL.
type Server struct {
	base   *url.URL
	client *http.Client
	close  func()
}

var _ remote.Store = (*Server)(nil)

// mostRedirects is how many redirects are followed.
const mostRedirects = 5

// New returns the server of a URL, which must be http:// or https://, without a user, a query and a
// fragment.
func New(base string, n Network) (*Server, error) {
	u, err := url.Parse(base)
	switch {
	case err != nil:
		return nil, NotURL(err)
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, errors.New("the URL has to be https://HOST/PATH or http://HOST/PATH")
	case u.User != nil:
		return nil, errors.New("the URL names a user, and would be written to logs: HDMLP reads web " +
			"servers without a password")
	case u.RawQuery != "" || u.Fragment != "":
		return nil, errors.New("the URL has a query or a fragment: give the path alone")
	}
	u.Path = strings.TrimSuffix(u.Path, "/")
	u.RawPath = strings.TrimSuffix(u.RawPath, "/")
	t := n.Transport()
	s := &Server{base: u, close: t.CloseIdleConnections}
	s.client = &http.Client{Transport: t, CheckRedirect: func(r *http.Request, via []*http.Request,
	) error {
		switch last := via[len(via)-1]; {
		case len(via) > mostRedirects:
			return fmt.Errorf("the server redirects more than %d times", mostRedirects)
		case last.URL.Scheme == "https" && r.URL.Scheme != "https":
			return errors.New("the server redirects from https to " + r.URL.Scheme)
		}
		return nil
	}}
	return s, nil
}

// NotURL returns the error of a text that url.Parse refuses, without the text: it may have a
// password.
func NotURL(err error) error {
	var known *url.Error
	if errors.As(err, &known) {
		err = known.Err
	}
	return fmt.Errorf("not a URL: %w", err)
}

// url returns the URL of a name, whose "." and ".." are parts like others.
func (s *Server) url(name string) string { return s.base.String() + "/" + escaped(name) }

// escaped returns a name as a part of a URL.
func escaped(name string) string {
	parts := strings.Split(name, "/")
	for i, part := range parts {
		parts[i] = url.PathEscape(part)
	}
	return strings.Join(parts, "/")
}

// Path implements remote.Store.
func (s *Server) Path(name string) string {
	if name == "" {
		return s.base.String()
	}
	return s.url(name)
}

// Close implements remote.Store.
func (s *Server) Close() error { s.close(); return nil }

func (s *Server) do(ctx context.Context, method, name, span string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, s.url(name), nil)
	if err != nil {
		return nil, &remote.Error{Kind: source.ErrUnreadable, Err: err}
	}
	r.Header.Set("User-Agent", "hdmlp")
	r.Header.Set("Accept-Encoding", "identity")
	if span != "" {
		r.Header.Set("Range", span)
	}
	response, err := s.client.Do(r)
	if err != nil {
		return nil, Unreached(err)
	}
	if coding := response.Header.Get("Content-Encoding"); !plain(coding, name) &&
		response.StatusCode/100 == 2 {
		_ = response.Body.Close()
		return nil, unreadable(fmt.Sprintf("the server sends it compressed (Content-Encoding: %s), "+
			"although that was not asked for: have it send the file as it is", human.Name(coding)))
	}
	return response, nil
}

// plain reports whether the bytes of a response are those of the file. Of a file that is compressed
// itself, many servers say how.
func plain(coding, name string) bool {
	compressed := []string{".gz", ".tgz", ".z", ".bz2", ".br", ".zst"}
	return coding == "" || strings.EqualFold(coding, "identity") ||
		slices.Contains(compressed, strings.ToLower(path.Ext(name)))
}

// Unreached returns the error of a request that got no response, as package remote has it.
func Unreached(err error) error {
	var known *url.Error // whose text has the URL, as the caller's has
	if errors.As(err, &known) {
		err = known.Err
	}
	kind := source.ErrUnavailable
	var certificate *tls.CertificateVerificationError
	var name *net.DNSError
	switch {
	case errors.As(err, &certificate):
		kind, err = source.ErrUnreadable, fmt.Errorf("%w; to trust its authority, set AWS_CA_BUNDLE "+
			"to a file with that one's certificate", err)
	case err.Error() == http.StatusText(http.StatusProxyAuthRequired),
		err.Error() == http.StatusText(http.StatusForbidden): // as net/http has a proxy's refusal
		kind, err = source.ErrUnreadable, fmt.Errorf("the proxy answers %w: check HTTPS_PROXY, with "+
			"its user and password, and NO_PROXY", err)
	case errors.As(err, &name) && name.IsNotFound:
		kind = source.ErrUnreadable
	case strings.Contains(err.Error(), "the server redirects"):
		kind = source.ErrUnreadable
	}
	return &remote.Error{Kind: kind, Err: err}
}

// Get implements remote.Store.
func (s *Server) Get(ctx context.Context, name string, offset, n int64) (*remote.Answer, error) {
	response, err := s.do(ctx, http.MethodGet, name, fmt.Sprintf("bytes=%d-%d", offset, offset+n-1))
	if err != nil {
		return nil, err
	}
	if response.StatusCode/100 != 2 {
		_ = response.Body.Close()
		return nil, remote.Refusal(response.StatusCode, response.Header, "", "")
	}
	answer, err := remote.AnswerOf(response.StatusCode, response.Header, response.ContentLength,
		offset, n)
	if err != nil {
		_ = response.Body.Close()
		return nil, err
	}
	answer.Body = response.Body
	return answer, nil
}

// Head implements remote.Store.
func (s *Server) Head(ctx context.Context, name string) (remote.Version, error) {
	response, err := s.do(ctx, http.MethodHead, name, "")
	if err != nil {
		return remote.Version{}, err
	}
	_ = response.Body.Close()
	switch {
	case response.StatusCode/100 != 2:
		return remote.Version{}, remote.Refusal(response.StatusCode, response.Header, "", "")
	case response.ContentLength < 0:
		return remote.Version{}, unreadable("the server does not say how many bytes it has " +
			"(Content-Length)")
	}
	return remote.VersionOf(response.Header, response.ContentLength), nil
}

// List implements remote.Store: it always fails.
func (s *Server) List(ctx context.Context, _, _ string, _ func(string, remote.Version) error,
) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return unreadable("a web server cannot be listed: give the names of the files, as in " +
		"https://HOST/train-{000000..000146}.tar")
}

func unreadable(text string) error {
	return &remote.Error{Kind: source.ErrUnreadable, Err: errors.New(text)}
}
