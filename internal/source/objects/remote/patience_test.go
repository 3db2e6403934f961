package remote

import (
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/source/objects"
)

// TestAServerThatIsDownIsWaitedFor while a dataset is opened, for as long as the context says, but
// not where there never was a connection.
func TestAServerThatIsDownIsWaitedFor(t *testing.T) {
	busy := &Error{Kind: source.ErrUnavailable, Err: errors.New("busy")}
	noConnection := &Error{
		Kind: source.ErrUnavailable,
		Err:  &net.OpError{Op: "dial", Err: errors.New("connection refused")},
	}
	for name, c := range map[string]struct {
		err     error
		reached bool
		down    time.Duration
		ok      bool
	}{
		"busy":            {busy, false, 20 * time.Second, true},
		"for too long":    {busy, false, 70 * time.Second, false},
		"connection lost": {noConnection, true, 20 * time.Second, true},
		"no connection":   {noConnection, false, 20 * time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin, f := time.Now(), new(fake)
				if c.reached {
					begin = begin.Add(time.Second)
				}
				f.head = func() (Version, error) {
					if since := time.Since(begin); since >= 0 && since < c.down {
						return Version{}, c.err
					}
					return version, nil
				}
				p, lines := New(f, Options{}), []string(nil)
				ctx := objects.Patient(t.Context(), time.Minute, func(line string) {
					lines = append(lines, line)
				})
				if c.reached {
					if _, err := p.Stat(ctx, "a"); err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Second)
				}
				_, err := p.Stat(ctx, "a")
				if (err == nil) != c.ok || err != nil && !errors.Is(err, source.ErrUnavailable) {
					t.Errorf("after %v: %v", time.Since(begin), err)
				}
				switch took := time.Since(begin); {
				case name == "no connection" && (took > 5*time.Second || lines != nil):
					t.Errorf("it was waited for, for %v: %q", took, lines)
				case name != "no connection" && (len(lines) != 1 || !strings.Contains(lines[0], "1m0s")):
					t.Errorf("%q", lines)
				}
			})
		})
	}
}
