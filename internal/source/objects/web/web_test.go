package web

import (
	"bytes"
	"crypto/md5"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/source/objects/objectstest"
	"github.com/hdmlp/hdmlp/internal/source/objects/remote"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server serves objects from memory.
type server struct {
	mu      sync.Mutex
	objects map[string][]byte
	denied  map[string]bool
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, ok := strings.CutPrefix(r.URL.Path, "/data/")
	s.mu.Lock()
	data, found := s.objects[name]
	denied := s.denied[name]
	s.mu.Unlock()
	switch {
	case denied:
		http.Error(w, "no", http.StatusForbidden)
	case !ok || !found:
		http.NotFound(w, r)
	default:
		w.Header().Set("ETag", fmt.Sprintf(`"%x"`, md5.Sum(data)))
		w.Header().Set("Content-Type", "application/octet-stream")
		http.ServeContent(w, r, "", time.Unix(1_700_000_000, 0), bytes.NewReader(data))
	}
}

func TestConformance(t *testing.T) {
	objectstest.Run(t, func(t *testing.T) objectstest.Fixture {
		s := &server{objects: map[string][]byte{}, denied: map[string]bool{}}
		web := httptest.NewServer(s)
		t.Cleanup(web.Close)
		store, err := New(web.URL+"/data/", Network{})
		if err != nil {
			t.Fatal(err)
		}
		locked := func(do func()) {
			s.mu.Lock()
			defer s.mu.Unlock()
			do()
		}
		return objectstest.Fixture{
			Objects:  remote.New(store, remote.Options{}),
			Put:      func(name string, data []byte) { locked(func() { s.objects[name] = data }) },
			Remove:   func(name string) { locked(func() { delete(s.objects, name) }) },
			Deny:     func(name string) { locked(func() { s.denied[name] = true }) },
			Unlisted: true,
		}
	})
}

func TestNewRefusesURLs(t *testing.T) {
	for url, want := range map[string]string{
		"ftp://host/a":              "https://HOST/PATH",
		"https:///a":                "https://HOST/PATH",
		"https://me:secret@host/a":  "names a user",
		"https://host/a?key=secret": "has a query",
		"https://host/a#b":          "fragment",
		"https://me:secret@[::1/a":  "not a URL",
	} {
		_, err := New(url, Network{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", url, err)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error has the password: %v", url, err)
		}
	}
}

func TestNamesAreEscaped(t *testing.T) {
	s, err := New("https://host:8443/a%20b/", Network{})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"c/d.tar":   "https://host:8443/a%20b/c/d.tar",
		"é ?#%.tar": "https://host:8443/a%20b/%C3%A9%20%3F%23%25.tar",
		"../c//d":   "https://host:8443/a%20b/../c//d",
		"\xff":      "https://host:8443/a%20b/%FF",
		"":          "https://host:8443/a%20b",
	} {
		if got := s.Path(name); got != want {
			t.Errorf("%q: %s, not %s", name, got, want)
		}
	}
}

// TestCompressedAnswersAreRefused: their bytes are not those of the file. Of a file that is
// compressed itself they are.
func TestCompressedAnswersAreRefused(t *testing.T) {
	coding := ""
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("Accept-Encoding"); got != "identity" {
			t.Errorf("Accept-Encoding: %s", got)
		}
		w.Header().Set("Content-Encoding", coding)
		w.Header().Set("Content-Length", "10") // ServeContent sets none of what is encoded
		http.ServeContent(w, r, "", time.Unix(1_700_000_000, 0), strings.NewReader("0123456789"))
	}))
	defer web.Close()
	store, err := New(web.URL, Network{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close() //nolint:errcheck // it was only read
	for _, c := range []struct {
		coding, name string
		ok           bool
	}{
		{"gzip", "a.jpg", false},
		{"br", "a", false},
		{"identity", "a.jpg", true},
		{"gzip", "a.csv.gz", true},
		{"x-gzip", "a.TGZ", true},
	} {
		coding = c.coding
		answer, err := store.Get(t.Context(), c.name, 0, 10)
		if err == nil {
			_ = answer.Body.Close()
		}
		_, headErr := store.Head(t.Context(), c.name)
		for _, err := range []error{err, headErr} {
			if (err == nil) != c.ok || err != nil && !strings.Contains(err.Error(), "compressed") {
				t.Errorf("%s of %s: %v", c.coding, c.name, err)
			}
		}
	}
}

// TestRefusalsOnTheWay are not for the moment: of a proxy, and of a certificate.
func TestRefusalsOnTheWay(t *testing.T) {
	for _, status := range []int{http.StatusForbidden, http.StatusProxyAuthRequired} {
		proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
		}))
		defer proxy.Close()
		n, err := NetworkOf(&source.Access{HTTPSProxy: proxy.URL})
		if err != nil {
			t.Fatal(err)
		}
		refused(t, "https://store.example.com", n, "check HTTPS_PROXY")
	}
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	defer secure.Close()
	refused(t, secure.URL, Network{}, "set AWS_CA_BUNDLE")
}

func refused(t *testing.T, url string, n Network, want string) {
	t.Helper()
	s, err := New(url, n)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close() //nolint:errcheck // nothing was read
	_, err = s.Head(t.Context(), "a")
	if !errors.Is(err, source.ErrUnreadable) || !strings.Contains(err.Error(), want) {
		t.Errorf("%s: %v", url, err)
	}
}
