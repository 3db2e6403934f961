package handover

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/lab/networktest"
	"github.com/hdmlp/hdmlp/internal/peers/auth"
	"github.com/hdmlp/hdmlp/internal/peers/cluster"
	pb "github.com/hdmlp/hdmlp/internal/peers/cluster/clusterpb"
	"github.com/hdmlp/hdmlp/internal/peers/cluster/session"
)

const address = "10.0.0.1:29513"

var name = Name{1, 2, 3}

// lab is node 0 and another node, in virtual time.
type lab struct {
	t       *testing.T
	network *networktest.Network
	zero    *networktest.Host
	one     *networktest.Host
}

func newLab(t *testing.T) *lab {
	n := networktest.New()
	l := &lab{t, n, n.Host("10.0.0.1"), n.Host("10.0.0.2")}
	t.Cleanup(func() { time.Sleep(time.Minute) }) // until timers of connections have ended
	return l
}

func (l *lab) options(node int) Options {
	o := optionsOf(node)
	o.Network = l.one
	if node == 0 {
		o.Network = l.zero
	}
	return o
}

func optionsOf(node int) Options {
	return Options{
		Launch: "launch", Node: node, Nodes: 2, Address: address,
		Secret: []byte("a secret that both nodes of the test have"),
		Log:    slog.New(slog.DiscardHandler),
	}
}

func (l *lab) listen(change ...func(*Options)) *Server {
	o := l.options(0)
	for _, f := range change {
		f(&o)
	}
	s, err := Listen(l.t.Context(), o)
	if err != nil {
		l.t.Fatal(err)
	}
	return s
}

func (l *lab) receive(progress func(done, of int)) (*Content, error) {
	return Receive(l.t.Context(), l.options(1), Wanted{
		Name: name, Come: 30 * time.Second, Stall: 5 * time.Minute, Progress: progress,
	})
}

// content returns bytes of several parts.
func content() []byte {
	b := make([]byte, 2*cluster.MaxAnswer+12345)
	for i := range b {
		b[i] = byte(i * i >> 7)
	}
	return b
}

// TestWhatNode0Makes is received whole, after its progress, whether the other node or node 0 comes
// first, with and without TLS.
func TestWhatNode0Makes(t *testing.T) {
	for _, c := range []struct {
		late, makes time.Duration
		tls         bool
	}{{0, 0, false}, {20 * time.Second, 10 * time.Minute, false}, {time.Second, time.Second, true}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, want := newLab(t), content()
				with := func(o *Options) {
					if c.tls {
						config, err := auth.DrawTLS()
						if err != nil {
							t.Fatal(err)
						}
						o.TLS = config
					}
				}
				done := make(chan struct{})
				go func() {
					defer close(done)
					time.Sleep(c.late)
					s := l.listen(with)
					t.Cleanup(s.Close)
					o := s.Offer(name, 4)
					for range 4 {
						time.Sleep(c.makes / 4)
						o.Step()
					}
					o.Step() // a step that is made again is not counted
					o.Ready(want)
				}()
				var steps []string
				o := l.options(1)
				with(&o)
				x, err := Receive(t.Context(), o, Wanted{
					Name: name, Come: 30 * time.Second, Stall: 5 * time.Minute,
					Progress: func(done, of int) { steps = append(steps, fmt.Sprint(done, "/", of)) },
				})
				if err != nil {
					t.Fatal(err)
				}
				got, err := io.ReadAll(x)
				if err != nil || x.Size() != int64(len(want)) || !bytes.Equal(got, want) {
					t.Errorf("%d bytes of %d, %v", len(got), x.Size(), err)
				}
				if c.makes > time.Minute && strings.Join(steps, " ") != "0/0 0/4 1/4 2/4 3/4" {
					t.Errorf("steps %v", steps)
				}
				_ = x.Close()
				<-done
			})
		})
	}
}

// TestWaitingEnds, whatever node 0 does.
func TestWaitingEnds(t *testing.T) {
	for _, c := range []struct {
		what  string
		zero  func(l *lab)
		after time.Duration // at most
		want  string
	}{
		{"never comes", func(*lab) {}, 45 * time.Second, "node 0 (" + address + "): "},
		{"is of another launch", func(l *lab) {
			l.t.Cleanup(l.listen(func(o *Options) { o.Launch = "another" }).Close)
		}, 45 * time.Second, "another launch"},
		{"has another secret", func(l *lab) {
			l.t.Cleanup(l.listen(func(o *Options) { o.Secret = []byte("another secret, as long") }).Close)
		}, 45 * time.Second, "secret"},
		{"has other nodes", func(l *lab) {
			l.t.Cleanup(l.listen(func(o *Options) { o.Nodes = 3 }).Close)
		}, 45 * time.Second, "there are 3 nodes"},
		{"does not begin", func(l *lab) {
			s := l.listen()
			l.t.Cleanup(s.Close)
			s.Offer(Name{9}, 1).Ready(nil)
		}, 45 * time.Second, "has not begun to make it within 30s"},
		{"makes no progress", func(l *lab) {
			s := l.listen()
			l.t.Cleanup(s.Close)
			s.Offer(name, 7).Step()
		}, 6 * time.Minute, "no progress for 5m0s, at 1 of 7"},
		{"fails", func(l *lab) {
			s := l.listen()
			l.t.Cleanup(s.Close)
			s.Offer(name, 7).Failed(errors.New("no such bucket"))
		}, time.Second, "could not make it: no such bucket"},
		{"ends while it makes it", func(l *lab) {
			s := l.listen()
			s.Offer(name, 7)
			time.AfterFunc(time.Minute, s.Close)
		}, 2 * time.Minute, "the connection to node 0 ended"},
		{"is cut off", func(l *lab) {
			s := l.listen()
			l.t.Cleanup(s.Close)
			s.Offer(name, 7)
			time.AfterFunc(time.Minute, func() { l.network.Cut("10.0.0.1") })
			l.t.Cleanup(func() { l.network.Join("10.0.0.1") })
		}, 3 * time.Minute, "node 0"},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLab(t)
				c.zero(l)
				begin := time.Now()
				_, err := l.receive(nil)
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Error(err)
				}
				if took := time.Since(begin); took > c.after {
					t.Errorf("after %v", took)
				}
			})
		})
	}
}

// TestReceivingIsGivenUp with its context.
func TestReceivingIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		for _, there := range []bool{false, true} {
			if there {
				s := l.listen()
				defer s.Close()
				s.Offer(name, 1)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			_, err := Receive(ctx, l.options(1), Wanted{Name: name, Come: time.Hour, Stall: time.Hour})
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			cancel()
		}
	})
}

// TestWhatWasReadyStaysSo until another one is. A node that is in the middle of the old one
// notices.
func TestWhatWasReadyStaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, old := newLab(t), content()
		s := l.listen()
		defer s.Close()
		s.Offer(name, 1).Ready(old)
		again := s.Offer(name, 1)
		again.Failed(errors.New("the store is gone"))
		x, err := l.receive(nil)
		if err != nil {
			t.Fatal(err)
		}
		defer x.Close()
		first := make([]byte, 10)
		if _, err := io.ReadFull(x, first); err != nil || !bytes.Equal(first, old[:10]) {
			t.Error(err)
		}
		again.Ready([]byte("new"))
		if _, err := io.ReadAll(x); !errors.Is(err, errReplaced) {
			t.Error(err)
		}
		y, err := l.receive(nil)
		if err != nil {
			t.Fatal(err)
		}
		defer y.Close()
		if got, err := io.ReadAll(y); err != nil || string(got) != "new" {
			t.Errorf("%q, %v", got, err)
		}
	})
}

// liar is a node 0 that answers anything.
type liar func(what string) *pb.Answer

func (f liar) Attend(a *session.Accepted) {
	a.Run(func(m *pb.Message) error {
		answer := f(m.GetQuestion().GetWhat())
		if answer.Round == 0 {
			answer.Round = m.GetQuestion().GetId()
		}
		a.Send(&pb.Message{Kind: &pb.Message_Answer{Answer: answer}})
		return nil
	}, func() {})
}

func (liar) Refuse(string, error) {}
func (liar) Running() bool        { return false }

// TestANode0ThatLies is noticed: what it sends is neither taken for the whole, nor for more.
func TestANode0ThatLies(t *testing.T) {
	state := func(text string) *pb.Answer { return &pb.Answer{Data: []byte(text)} }
	ready := func(part []byte) liar {
		return func(what string) *pb.Answer {
			if strings.HasPrefix(what, "part") {
				return &pb.Answer{Data: part}
			}
			return state(`{"stage": "ready", "size": 20, "copy": 1}`)
		}
	}
	for _, c := range []struct {
		what string
		zero liar
		want string
	}{
		{"no JSON", func(string) *pb.Answer { return state("ready") }, "node 0 sent"},
		{"an unknown stage", func(string) *pb.Answer {
			return state(`{"stage": "x"}`)
		}, "invalid state"},
		{"more steps than there are", func(string) *pb.Answer {
			return state(`{"stage": "making", "done": 3, "of": 2}`)
		}, "invalid state"},
		{"a negative size", func(string) *pb.Answer {
			return state(`{"stage": "ready", "size": -1}`)
		}, "invalid state"},
		{"a long reason", func(string) *pb.Answer {
			return state(`{"stage": "failed", "why": "` + strings.Repeat("x", mostWhy+1) + `"}`)
		}, "invalid state"},
		{"an answer to another question", func(string) *pb.Answer {
			return &pb.Answer{Round: 77}
		}, "something else than was asked"},
		{"nothing of the whole", ready(nil), errReplaced.Error()},
		{"more than the whole", ready(make([]byte, 21)), "21 bytes, where 20 are left"},
		{"a part that is too long", ready(make([]byte, cluster.MaxAnswer+1)), "than was asked"},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLab(t)
				listener, err := l.zero.Listen(address)
				if err != nil {
					t.Fatal(err)
				}
				o := l.options(0)
				web := session.NewServer(session.ServerOptions{
					Nodes: 2, Instance: "zero", Secret: o.Secret, Log: o.Log,
				}, c.zero)
				served := make(chan error)
				go func() { served <- web.Serve(listener) }()
				x, err := l.receive(nil)
				if err == nil {
					_, err = io.ReadAll(x)
					_ = x.Close()
				}
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Error(err)
				}
				web.Close()
				if err := <-served; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestOptionsThatNoNodesHave are refused by both sides.
func TestOptionsThatNoNodesHave(t *testing.T) {
	for _, change := range []func(*Options){
		func(o *Options) { o.Secret = []byte("short") },
		func(o *Options) { o.Launch = strings.Repeat("x", maxLaunch+1) },
		func(o *Options) { o.Node = 2 },
		func(o *Options) { o.Nodes = cluster.MaxNodes + 1 },
	} {
		o := optionsOf(1)
		change(&o)
		if _, err := Listen(t.Context(), o); err == nil {
			t.Error("node 0 listens")
		}
		if _, err := Receive(t.Context(), o, Wanted{}); err == nil {
			t.Error("a node receives")
		}
	}
}

func FuzzState(f *testing.F) {
	f.Add([]byte(`{"stage": "making", "done": 1, "of": 2}`))
	f.Add([]byte(`{"stage": "ready", "size": 20, "copy": 18446744073709551615, "why": ""}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := decodeState(text)
		if err == nil && (s.Done > s.Of || s.Done < 0 || s.Size < 0 || len(s.Why) > mostWhy) {
			t.Errorf("%+v", s)
		}
	})
}

func FuzzQuestion(f *testing.F) {
	f.Add(question{name: name, at: -1}.String())
	f.Add(question{name: name, copy: 3, at: 1 << 40}.String())
	f.Fuzz(func(t *testing.T, text string) {
		q, err := parseQuestion(text)
		if err != nil {
			return
		}
		if again, err := parseQuestion(q.String()); err != nil || again != q {
			t.Errorf("%q is %+v, and %+v, %v", text, q, again, err)
		}
	})
}
