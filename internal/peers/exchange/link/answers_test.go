package link

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/model/routing"
	"github.com/hdmlp/hdmlp/internal/peers/exchange/wire"
)

// TestMalformedAnswerIsBlamedOnItsCall checks that of two calls in flight, the one with a malformed
// answer fails as corrupt, and is not repeated; the other one only lost its connection, and is.
func TestMalformedAnswerIsBlamedOnItsCall(t *testing.T) {
	for name, answer := range malformed() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, peer, ended := running(t)
				results := []chan error{fetch(t.Context(), l, 0), fetch(t.Context(), l, 1)}
				go peer.Write(answer)
				if err := <-results[0]; !errors.Is(err, wire.ErrCorrupt) {
					t.Errorf("the call with this answer fails with %v", err)
				}
				if err := <-results[1]; err != ErrBroken {
					t.Errorf("the other call fails with %v", err)
				}
				if err := <-ended; !errors.Is(err, wire.ErrFrame) {
					t.Errorf("the connection ends with %v", err)
				}
			})
		})
	}
}

// TestMalformedAnswerEndsItsCall checks that a call does not count as in flight after a malformed
// answer, whether its caller waited for it or had left.
func TestMalformedAnswerEndsItsCall(t *testing.T) {
	for name, answer := range malformed() {
		for _, left := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				l, peer, ended := running(t)
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				result := fetch(ctx, l, 0)
				if left {
					leave()
					<-result
				}
				if n := l.InFlight(); n != 1 {
					t.Errorf("%s, left %v: %d calls are in flight before the answer", name, left, n)
				}
				go peer.Write(answer)
				<-ended
				synctest.Wait() // the caller has its error
				if n := l.InFlight(); n != 0 {
					t.Errorf("%s, left %v: %d calls are in flight", name, left, n)
				}
			})
		}
	}
}

// malformed returns answers to a call with tag 0 for sample 0 of one byte, after which the
// connection cannot be used.
func malformed() map[string][]byte {
	failure := wire.AppendFrame(nil, wire.Header{Kind: wire.KindFailure, Code: wire.CodeFailed},
		[]byte("no such file"))
	failure[len(failure)-1] ^= 1
	return map[string][]byte{
		"a failure with a wrong checksum": failure,
		"another sample": wire.AppendFrame(nil, wire.Header{Kind: wire.KindSample, Sample: 7},
			[]byte{0}),
	}
}

// running returns a link with two tags, its peer, which reads all requests, and how the link ended.
func running(t *testing.T) (l *Link, peer net.Conn, ended chan error) {
	near, peer := net.Pipe()
	t.Cleanup(func() { peer.Close() })
	go io.Copy(io.Discard, peer)
	l = New(near, 2, Options{Timeout: time.Minute, KeepAlive: time.Minute, Counts: new(Counts)})
	ended = make(chan error, 1)
	go func() { ended <- l.Run(t.Context()) }()
	return l, peer, ended
}

// fetch calls l.Fetch for a sample of one byte, and returns once the call is in flight. The first
// call has tag 0.
func fetch(ctx context.Context, l *Link, id int32) (result chan error) {
	result = make(chan error, 1)
	go func() {
		_, err := l.Fetch(ctx, id, make([]byte, 1), routing.Want{Size: 1})
		result <- err
	}()
	synctest.Wait()
	return result
}

// TestTagTakenAgainIsNotCancelled: a call is cancelled, and answered before its CANCEL is sent. No
// CANCEL names its tag then, which another call has, until that one is cancelled as well.
func TestTagTakenAgainIsNotCancelled(t *testing.T) {
	near, peer := net.Pipe()
	defer peer.Close()
	defer near.Close()
	l := New(near, 1, Options{Timeout: time.Hour, KeepAlive: time.Hour, Counts: new(Counts)})
	c := &l.calls[0]
	ask := func() {
		<-l.free
		l.inFlight.Add(1)
		l.send(c, 0, make([]byte, 1), routing.Want{Size: 1})
	}
	cancel := func() {
		c.leave()
		l.cancel(c)
	}
	sent := func() []byte {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.appendCancels(nil)
	}
	ask()
	cancel()
	l.answered(c, wire.Header{Kind: wire.KindFailure}, wire.ErrNotHeld)
	ask()
	if b := sent(); len(b) > 0 {
		t.Errorf("the call that has the tag now is cancelled: %x", b)
	}
	cancel()
	want := wire.AppendFrame(nil, wire.Header{Kind: wire.KindCancel}, []byte{0, 0, 0, 0})
	if b := sent(); !bytes.Equal(b, want) {
		t.Errorf("to cancel it, %x is sent, want %x", b, want)
	}
}

// TestSamplesThatArriveTogether has several samples arrive at once, one of which is not wanted any
// more, and after them one that nothing asked for: each call that waits has its own sample, nothing
// is written for the one that was left, and the last one's call has lost its connection.
func TestSamplesThatArriveTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, peer := net.Pipe()
		defer peer.Close()
		go io.Copy(io.Discard, peer)
		counts := new(Counts)
		l := New(near, 4, Options{Timeout: time.Minute, KeepAlive: time.Minute, Counts: counts})
		ended := make(chan error, 1)
		go func() { ended <- l.Run(t.Context()) }()
		ctx, leave := context.WithCancel(t.Context())
		var dsts [4][]byte
		var results [4]chan error
		for i := range dsts {
			dsts[i], results[i] = make([]byte, 3), make(chan error, 1)
			within := t.Context()
			if i == 1 {
				within = ctx
			}
			go func() {
				_, err := l.Fetch(within, int32(i), dsts[i], routing.Want{Size: 3})
				results[i] <- err
			}()
			synctest.Wait() // tags are given in order
		}
		leave()
		synctest.Wait()
		var frames []byte
		for _, tag := range []uint32{2, 0, 1, 0} {
			h := wire.Header{Kind: wire.KindSample, Tag: tag, Sample: int32(tag)}
			frames = wire.AppendFrame(frames, h, []byte{byte(tag), 7, 8})
		}
		go peer.Write(frames)
		if err := <-ended; !errors.Is(err, wire.ErrFrame) {
			t.Errorf("the connection ends with %v", err)
		}
		for i, want := range []error{nil, context.Canceled, nil, ErrBroken} {
			if err := <-results[i]; err != want {
				t.Errorf("call %d returns %v, want %v", i, err, want)
			}
			if got, has := dsts[i], []byte{byte(i), 7, 8}; bytes.Equal(got, has) != (want == nil) {
				t.Errorf("call %d has %v", i, got)
			}
		}
		synctest.Wait()
		if n := l.InFlight(); n != 1 { // that of the call which was not answered
			t.Errorf("%d calls are in flight", n)
		}
		if n, bytes := counts.Samples.Load(), counts.Bytes.Load(); n != 3 || bytes != 9 {
			t.Errorf("%d samples of %d bytes are counted", n, bytes)
		}
	})
}
