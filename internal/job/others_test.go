package job

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/breaker"
	"github.com/hdmlp/hdmlp/internal/config"
	"github.com/hdmlp/hdmlp/internal/exchange"
	"github.com/hdmlp/hdmlp/internal/placement"
	"github.com/hdmlp/hdmlp/internal/request"
)

// TestHolderReadsForOthersOnlyWhereSamplesAreReadOnce: a sample that is held is sent; one that is not is read from the source for another node only
// if the plan reads once, and that read is charged to this node.
func TestHolderReadsForOthersOnlyWhereSamplesAreReadOnce(t *testing.T) {
	var w world
	n := w.node()
	r := open(t, n, message(0, 1, set("memory", "10000B"), func(m *request.Open) { m.Stream.Epochs = 1 })) // so that nothing is read ahead
	var once bool
	var fails error
	var charged int64
	h := &holder{r.job.cache, func(context.Context) (bool, error) { return once, fails }, func(bytes int64) { charged += bytes }}
	sample := func(id int32) (data []byte, err error) {
		err = h.Sample(t.Context(), id, func(d []byte, _ uint32) error {
			data = slices.Clone(d)
			return nil
		})
		return data, err
	}
	consume(t, r, at{0, 0}, end)
	held := r.job.planner.Plan().Nodes[0].Classes[0]
	other := int32(-1) // which is not held
	for id := range int32(samples) {
		if !slices.Contains(held, id) {
			other = id
		}
	}
	before := w.bytes.Load()
	if data, err := sample(held[0]); err != nil || len(data) != sampleSize || charged != 0 {
		t.Errorf("what is held: %d bytes, %v; %d charged", len(data), err, charged)
	}
	if data, sum, ok := h.Held(held[0]); !ok || len(data) != sampleSize || sum == 0 {
		t.Errorf("what is held is not there: %d bytes, digest %08x, %v", len(data), sum, ok)
	}
	if _, err := sample(other); !errors.Is(err, exchange.ErrNotHeld) || w.bytes.Load() != before {
		t.Errorf("where samples are not read once: %v, and %d bytes left the source", err, w.bytes.Load()-before)
	}
	fails = context.Canceled
	if _, err := sample(other); !errors.Is(err, context.Canceled) {
		t.Errorf("a request that was cancelled: %v", err)
	}
	once, fails = true, nil
	if data, err := sample(other); err != nil || !slices.Equal(data, slices.Repeat([]byte{byte(other)}, sampleSize)) || charged != sampleSize || w.bytes.Load() != before+sampleSize {
		t.Errorf("where they are: %d bytes, %v; %d charged, %d left the source", len(data), err, charged, w.bytes.Load()-before)
	}
	for _, id := range []int32{-1, samples} {
		if _, err := sample(id); !errors.Is(err, exchange.ErrNotHeld) {
			t.Errorf("sample %d: %v", id, err)
		}
		if _, _, ok := h.Held(id); ok {
			t.Errorf("sample %d is held", id)
		}
	}
	r.Close()
	w.close(t, n)
}

// TestLeadOfANodeThatIsGone: a node that is gone is taken to have begun where the others did, and to have kept what a whole epoch needs.
func TestLeadOfANodeThatIsGone(t *testing.T) {
	c := newNodes(t, 3, false)
	ranks := c.open()
	o := ranks[0].job.others
	ranks[2].Close()
	for _, r := range ranks[:2] {
		eventually(t, "node 2 is known to be gone", func() bool { return !r.job.others.cluster.Alive(2) })
	}
	mine, theirs := placement.Lead{Epoch: 2, Step: 1, Steps: 3}, placement.Lead{Epoch: 1, Step: 2, Steps: 1}
	told := make(chan []placement.Lead)
	go func() {
		leads, err := ranks[1].job.others.Leads(t.Context(), theirs, 4)
		if err != nil {
			t.Error(err)
		}
		told <- leads
	}()
	leads, err := o.Leads(t.Context(), mine, 4)
	want := []placement.Lead{mine, theirs, {Epoch: 2, Step: 1, Steps: 4}}
	if others := <-told; err != nil || !slices.Equal(leads, want) || !slices.Equal(others, want) {
		t.Errorf("node 0 hears %+v, node 1 %+v, want %+v; %v", leads, others, want, err)
	}
	closeAll(ranks[:2])
	c.close()
}

// TestNodesTalkOverTLS: with tls on, the ports for samples and for control both speak TLS.
func TestNodesTalkOverTLS(t *testing.T) {
	c := newNodes(t, 2, false)
	ranks := c.open(set("tls", true), set("memory", "22000B"))
	for _, m := range ranks[0].job.others.cluster.Members() {
		speaksTLS(t, "samples", m.Exchange)
	}
	speaksTLS(t, "control", ranks[0].job.message.Cluster.Address)
	c.epochs(ranks, 0, 2)
	if total, most := c.read(); total != samples || most != 1 {
		t.Errorf("the source was read %d times, one sample %d times: the nodes do not give each other samples", total, most)
	}
	closeAll(ranks)
	c.close()
}

// speaksTLS checks that a port does.
func speaksTLS(t *testing.T, what, address string) {
	t.Helper()
	conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Errorf("%s at %s: %v", what, address, err)
		return
	}
	conn.Close()
}

// TestCertificatesThatAreGivenAreUsed: no key is drawn in the place of files that cannot be read.
func TestCertificatesThatAreGivenAreUsed(t *testing.T) {
	j := &Job{cfg: &config.Config{}}
	j.message.Cluster = &request.Cluster{Nodes: 2}
	if c, err := j.tls(); c != nil || err != nil {
		t.Errorf("TLS is off: %v, %v", c, err)
	}
	j.cfg.TLS = true
	if c, err := j.tls(); err != nil || len(c.Certificates) != 1 {
		t.Errorf("none is given: %v, %v", c, err)
	}
	dir := t.TempDir()
	j.cfg.TLSCert, j.cfg.TLSKey, j.cfg.TLSCA = dir+"/cert.pem", dir+"/key.pem", dir+"/ca.pem"
	if c, err := j.tls(); c != nil || err == nil || !strings.Contains(err.Error(), j.cfg.TLSCert) {
		t.Errorf("one is given that is not there: %v, %v", c, err)
	}
	if err := os.WriteFile(j.cfg.TLSCert, []byte("none"), 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err := j.tls(); c != nil || err == nil || !strings.Contains(err.Error(), j.cfg.TLSKey) {
		t.Errorf("its key is not there: %v, %v", c, err)
	}
}

// TestNodeThatIsBackIsReachedAtOnce: an attempt to connect that waits for an answer which was lost is given up when the node is known to be back, and
// the stops are told to it.
func TestNodeThatIsBackIsReachedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dials := make(chan time.Time, 8)
		client := exchange.NewClient(exchange.Identity{Job: "j", Nodes: 2, Secret: []byte("0123456789abcdef0123456789abcdef")}, 1, func(ctx context.Context) (net.Conn, error) {
			dials <- time.Now()
			<-ctx.Done()
			return nil, ctx.Err()
		}, exchange.ClientOptions{})
		defer client.Close()
		o := &others{
			clients: []*exchange.Client{nil, client}, peers: breaker.NewSet(breaker.Options{Peers: []breaker.Fetcher{nil, client}}), back: make(chan struct{}, 1),
		}
		go func() { _, _ = client.Fetch(t.Context(), 0, make([]byte, 1)) }() // it connects when it is first used
		<-dials
		<-time.After(time.Second)
		o.note(1, false)
		<-o.back
		known := time.Now()
		o.note(1, true)
		if again := <-dials; !again.Equal(known) {
			t.Errorf("the next attempt was made %v after it was known", again.Sub(known))
		}
		<-o.back
	})
}
