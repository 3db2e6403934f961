package remote

import (
	"context"
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

// TestAServerThatDrips a byte per second is not waited for without an end while a dataset is
// opened.
func TestAServerThatDrips(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{data: make([]byte, 4096)}
		f.get = func(ctx context.Context, _ int64, a *Answer) (*Answer, error) {
			a.Body = dripping{ctx}
			return a, nil
		}
		p, begin := New(f, Options{}), time.Now()
		ctx := objects.Patient(t.Context(), time.Minute, func(line string) { t.Error(line) })
		o, err := p.Stat(ctx, "a")
		if err != nil {
			t.Fatal(err)
		}
		_, err = p.Read(ctx, &o, 0, [][]byte{make([]byte, 4096)})
		if !errors.Is(err, source.ErrUnavailable) || !strings.Contains(err.Error(),
			"a request has taken more than 1m0s") || time.Since(begin) != time.Minute {
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
	})
}

// dripping is a body that sends a byte per second until its request ends.
type dripping struct{ ctx context.Context }

func (d dripping) Read(p []byte) (int, error) {
	select {
	case <-time.After(time.Second):
		return 1, nil
	case <-d.ctx.Done():
		return 0, d.ctx.Err()
	}
}

func (dripping) Close() error { return nil }
