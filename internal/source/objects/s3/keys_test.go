package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/source/objects"
)

// issuer gives keys that last for some time.
type issuer struct {
	lasts time.Duration
	fail  error

	mu    sync.Mutex // guards the following
	given int
}

func (i *issuer) next() source.Keys {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.given++
	return source.Keys{
		ID: fmt.Sprintf("id-%d", i.given), Secret: "a-secret", Token: "a-token",
		Expires: time.Now().Add(i.lasts),
	}
}

func (i *issuer) renew(context.Context) (*source.Access, error) {
	time.Sleep(time.Second) // a process is asked
	if i.fail != nil {
		return nil, i.fail
	}
	k := i.next()
	return &source.Access{Keys: &k}, nil
}

// TestKeysAreReplacedBeforeTheyExpire uses keys for a while: they are always valid, nothing waits
// for others but at the beginning, and they are asked for about as often as they expire.
func TestKeysAreReplacedBeforeTheyExpire(t *testing.T) {
	for _, lasts := range []time.Duration{10 * time.Second, 15 * time.Minute, 12 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			i := &issuer{lasts: lasts}
			k := newKeys(i.next(), i.renew)
			defer k.close()
			const steps = 1000
			step := min(lasts/100, time.Minute)
			begin := time.Now()
			for range steps {
				before := time.Now()
				used, err := k.obtain(t.Context())
				if err != nil || !used.Expires.After(time.Now()) || time.Since(before) > 0 {
					t.Fatalf("%v after %v: %v", used.Expires, time.Since(begin), err)
				}
				time.Sleep(step)
			}
			if turns := int(steps * step / lasts); i.given < turns || i.given > turns*3/2+1 {
				t.Errorf("%v: keys were given %d times in %d times their life", lasts, i.given, turns)
			}
		})
	}
}

func TestKeysThatCannotBeReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := &issuer{lasts: 10 * time.Second}
		k := newKeys(i.next(), i.renew)
		defer k.close()
		i.fail = errors.New("the process is gone")
		time.Sleep(9 * time.Second)
		if _, err := k.obtain(t.Context()); err != nil {
			t.Errorf("while they are valid: %v", err)
		}
		time.Sleep(4 * time.Second)
		_, err := k.obtain(t.Context())
		if !errors.Is(err, source.ErrUnavailable) || !strings.Contains(err.Error(), "is gone") ||
			strings.Contains(err.Error(), "secret") {
			t.Error(err)
		}
		i.fail = nil
		time.Sleep(afterFailure + time.Second)
		if used, err := k.obtain(t.Context()); err != nil || used.ID != "id-2" {
			t.Error(used.ID, err)
		}
	})
}

// answers serves what a test says, and records what it is asked.
type answers struct {
	*httptest.Server
	mu  sync.Mutex // guards the following
	ids []string   // of the keys of the requests
}

func answering(t *testing.T, answer func(w http.ResponseWriter, r *http.Request, id string),
) *answers {
	a := new(answers)
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, rest, _ := strings.Cut(r.Header.Get("Authorization"), "Credential=")
		id, _, _ := strings.Cut(rest, "/")
		a.mu.Lock()
		a.ids = append(a.ids, id)
		a.mu.Unlock()
		answer(w, r, id)
	}))
	t.Cleanup(a.Close)
	return a
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, "<Error><Code>%s</Code><Message>no</Message></Error>", code)
}

func send(w http.ResponseWriter) {
	w.Header().Set("ETag", `"v1"`)
	w.Header().Set("Last-Modified", time.Unix(1_700_000_000, 0).UTC().Format(http.TimeFormat))
	w.Header().Set("Content-Range", "bytes 0-2/3")
	w.WriteHeader(http.StatusPartialContent)
	_, _ = io.WriteString(w, "abc")
}

func bucketAt(t *testing.T, url string, i *issuer) objects.Objects {
	t.Helper()
	first := i.next()
	o, err := Place().Open("s3://data/x", &source.View{
		Access: &source.Access{Endpoint: url, Region: "us-east-1", Style: "path", Keys: &first},
		Renew: func(ctx context.Context) (*source.View, error) {
			a, err := i.renew(ctx)
			return &source.View{Access: a}, err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = o.Close() })
	return o
}

func readABC(t *testing.T, o objects.Objects) error {
	t.Helper()
	part := make([]byte, 3)
	_, err := o.Read(t.Context(), &source.Object{Name: "a", Size: 3}, 0, [][]byte{part})
	if err == nil && string(part) != "abc" {
		t.Errorf("%q", part)
	}
	return err
}

// TestKeysThatTheStoreRefusesAsExpired are replaced, although by this machine's clock they are not.
func TestKeysThatTheStoreRefusesAsExpired(t *testing.T) {
	a := answering(t, func(w http.ResponseWriter, _ *http.Request, id string) {
		if id == "id-1" {
			refuse(w, http.StatusBadRequest, "ExpiredToken")
			return
		}
		send(w)
	})
	o := bucketAt(t, a.URL, &issuer{lasts: time.Hour})
	for range 2 {
		if err := readABC(t, o); err != nil {
			t.Error(err)
		}
	}
	if got := strings.Join(a.ids, " "); got != "id-1 id-2 id-2" {
		t.Error(got)
	}
}

// TestKeysThatAHeadRefusesAsExpired are replaced as well: the reason comes with a GET.
func TestKeysThatAHeadRefusesAsExpired(t *testing.T) {
	a := answering(t, func(w http.ResponseWriter, _ *http.Request, id string) {
		if id == "id-1" {
			refuse(w, http.StatusBadRequest, "ExpiredToken")
			return
		}
		w.Header().Set("Last-Modified", time.Unix(1_700_000_000, 0).UTC().Format(http.TimeFormat))
		w.Header().Set("Content-Length", "3")
	})
	o := bucketAt(t, a.URL, &issuer{lasts: time.Hour})
	if found, err := o.Stat(t.Context(), "a"); err != nil || found.Size != 3 {
		t.Errorf("%+v: %v", found, err)
	}
	if got := strings.Join(a.ids, " "); got != "id-1 id-1 id-2" {
		t.Error(got)
	}
}

// TestRefusals: what a store refuses says why and what to do, and no key is in it.
func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		status int
		code   string
		kind   error
		text   string
	}{
		{403, "AccessDenied", source.ErrUnreadable, "do not give access"},
		{403, "InvalidAccessKeyId", source.ErrUnreadable, "does not know this access key"},
		{403, "SignatureDoesNotMatch", source.ErrUnreadable, "not that of the access key"},
		{403, "RequestTimeTooSkewed", source.ErrUnreadable, "the clock of this machine"},
		{403, "InvalidObjectState", source.ErrUnreadable, "archived"},
		{404, "NoSuchBucket", source.ErrUnreadable, "no such bucket"},
		{404, "NoSuchKey", source.ErrMissing, "NoSuchKey"},
		{404, "NoSuchUser", source.ErrUnreadable, "NoSuchUser"}, // that is no file
		{400, "AuthorizationHeaderMalformed", source.ErrUnreadable, "another region"},
		{301, "PermanentRedirect", source.ErrUnreadable, "another region"},
		{503, "SlowDown", source.ErrUnavailable, "SlowDown"},
		{500, "InternalError", source.ErrUnavailable, "InternalError"},
		{412, "PreconditionFailed", source.ErrChanged, "PreconditionFailed"},
	} {
		a := answering(t, func(w http.ResponseWriter, _ *http.Request, _ string) {
			refuse(w, c.status, c.code)
		})
		err := readABC(t, bucketAt(t, a.URL, &issuer{lasts: time.Hour}))
		if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.text) ||
			!strings.Contains(err.Error(), "s3://data/x/a") {
			t.Errorf("%d %s: %v", c.status, c.code, err)
		}
		if err != nil && (strings.Contains(err.Error(), "a-secret") ||
			strings.Contains(err.Error(), "a-token")) {
			t.Errorf("%s: a key is in the message: %v", c.code, err)
		}
	}
}

// TestARedirectIsNotFollowed, so that no other host gets what signs requests.
func TestARedirectIsNotFollowed(t *testing.T) {
	other := answering(t, func(w http.ResponseWriter, _ *http.Request, _ string) { send(w) })
	a := answering(t, func(w http.ResponseWriter, r *http.Request, _ string) {
		http.Redirect(w, r, other.URL+r.URL.Path, http.StatusTemporaryRedirect)
	})
	if err := readABC(t, bucketAt(t, a.URL, &issuer{lasts: time.Hour})); err == nil {
		t.Error("it was read")
	}
	if len(other.ids) > 0 {
		t.Errorf("the other host was asked with %q", other.ids)
	}
}

// TestAnswersThatLie are errors, and none hangs.
func TestAnswersThatLie(t *testing.T) {
	for name, header := range map[string]map[string]string{
		"other bytes":  {"Content-Range": "bytes 1-3/4"},
		"no numbers":   {"Content-Range": "bytes a-b/c"},
		"beyond":       {"Content-Range": "bytes 0-5/3"},
		"other length": {"Content-Length": "2"},
		"no time":      {"Last-Modified": "yesterday"},
	} {
		a := answering(t, func(w http.ResponseWriter, _ *http.Request, _ string) {
			w.Header().Set("ETag", `"v1"`)
			w.Header().Set("Last-Modified", "Tue, 14 Nov 2023 22:13:20 GMT")
			w.Header().Set("Content-Range", "bytes 0-2/3")
			for k, v := range header {
				w.Header().Set(k, v)
			}
			w.WriteHeader(http.StatusPartialContent)
			_, _ = io.WriteString(w, "abc") // more than is announced is an error
		})
		if err := readABC(t, bucketAt(t, a.URL, &issuer{lasts: time.Hour})); err == nil {
			t.Errorf("%s: it was read", name)
		}
	}
}
