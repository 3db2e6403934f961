package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/engine/stage"
	"github.com/hdmlp/hdmlp/internal/lab/testkit"
	"github.com/hdmlp/hdmlp/internal/lib/option"
	"github.com/hdmlp/hdmlp/internal/node/budget"
	"github.com/hdmlp/hdmlp/internal/node/catalog"
	"github.com/hdmlp/hdmlp/internal/node/config"
	"github.com/hdmlp/hdmlp/internal/node/failure"
	"github.com/hdmlp/hdmlp/internal/node/request"
	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/store"
	"github.com/hdmlp/hdmlp/internal/store/file"
	"github.com/hdmlp/hdmlp/internal/store/file/disk"
	"github.com/hdmlp/hdmlp/internal/store/memory"
)

// slowSource is a configuration file by which the source is slower than all else, so that samples
// are read from it only if no node has them, whatever the timing.
var slowSource string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "node-test-")
	if err == nil {
		slowSource = filepath.Join(dir, "hdmlp.toml")
		err = os.WriteFile(slowSource, []byte("[environment]\nsource = {1 = 0.0001}\n"), 0o600)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	status := testkit.Run(m)
	_ = os.RemoveAll(dir)
	os.Exit(status)
}

// The test dataset has 40 samples of 1000 bytes in two classes.
const (
	samples    = 40
	sampleSize = 1000
	total      = samples * sampleSize
)

// fakeSource is a dataset whose samples consist of their own number.
type fakeSource struct {
	world         *world
	index         *source.Index
	device, inode uint64 // of its root, if opened through a view
}

func (s *fakeSource) Index() *source.Index { return s.index }

func (s *fakeSource) Close() error {
	s.world.open.Add(-1)
	return nil
}

func (s *fakeSource) DirectoryID() (device, inode uint64) { return s.device, s.inode }

func (s *fakeSource) Path(id int) string { return "/data/" + s.index.Name(id) }

func (s *fakeSource) Read(ctx context.Context, id int, dst []byte) (source.Stamp, error) {
	if s.world.read != nil {
		if err := s.world.read(ctx, id); err != nil {
			return 0, err
		}
	}
	s.world.bytes.Add(int64(len(dst)))
	copy(dst, bytes.Repeat([]byte{byte(id)}, len(dst)))
	return 0, nil
}

func (s *fakeSource) ReadBeside(string, int64) (data []byte, path string, err error) {
	if s.world.beside == nil {
		return nil, "", nil
	}
	return s.world.beside, "/data.beside", nil
}

func (s *fakeSource) WriteBeside(string, []byte) (path string, err error) {
	return "/data.beside", nil
}

func (s *fakeSource) Stat(context.Context, int) (source.Stamp, error) { return 0, nil }

// world is the machine of a test's node.
type world struct {
	open, bytes atomic.Int64                            // open sources; bytes read
	read        func(ctx context.Context, id int) error // called before every read
	// scan, if not nil, is called before a dataset is opened
	scan      func(ctx context.Context, n func(int64)) error
	available func() (int64, error)
	ram       *memory.Class
	disk      string
	files     disk.Disk // of storage classes; nil: the operating system
	// sees returns the prefix of file names for a view; nil: the same for all views.
	sees     func(view *source.View) string
	contents byte    // part of the files' contents
	beside   []byte  // what is stored of the machine beside the dataset
	sizes    []int64 // of the samples, an even number; nil: as of the test dataset
}

// count returns the number of samples of the dataset, and size the bytes of one.
func (w *world) count() int {
	if w.sizes != nil {
		return len(w.sizes)
	}
	return samples
}

func (w *world) size(id int) int64 {
	if w.sizes != nil {
		return w.sizes[id]
	}
	return sampleSize
}

func (w *world) node() *Node {
	if w.ram == nil {
		w.ram = memory.New(memory.Options{})
	}
	directory := file.Kind("")
	directory.New = func(o store.Options) (store.Class, error) {
		own := file.OptionsOf(o)
		own.Reserve, own.Disk = 1, w.files
		return file.New(own)
	}
	return New(Options{
		Shared: Shared{Budget: new(budget.Budget)},
		Kinds: catalog.Kinds{
			Sources: []source.Kind{
				{Name: "fake", Options: extensions, Open: func(ctx context.Context, path string,
					o source.OpenOptions,
				) (source.Indexed, error) {
					if w.scan != nil {
						if err := w.scan(ctx, o.Progress); err != nil {
							return nil, err
						}
					}
					if strings.Contains(path, "missing") {
						return nil, &source.Error{Path: path, Kind: source.ErrNoDirectory}
					}
					src, prefix := &fakeSource{world: w}, path[1:]
					if o.View != nil {
						var root unix.Stat_t
						if err := unix.Fstat(int(o.View.Root.Fd()), &root); err != nil {
							return nil, err
						}
						src.device, src.inode = root.Dev, root.Ino
					}
					if w.sees != nil {
						prefix = w.sees(o.View)
					}
					b := source.NewBuilder([]string{"a", "b"}, []string{".x"})
					b.Directory(source.Directory{Class: -1})
					for class, name := range []string{"a", "b"} {
						b.Directory(source.Directory{Path: name, Class: class})
						for i := range w.count() / 2 {
							b.Sample(fmt.Sprintf("%s%04d.x", prefix, i),
								w.size(class*w.count()/2+i), 0, 0)
						}
					}
					var err error
					if src.index, err = b.Build(); err != nil {
						return nil, err
					}
					if src.index, err = src.index.WithContents(
						slices.Repeat([][16]byte{{w.contents}}, len(src.index.Excerpts())),
					); err != nil {
						return nil, err
					}
					w.open.Add(1)
					return src, nil
				}},
			},
			Classes: []store.Kind{memory.Kind(w.ram), directory},
		}, Machine: config.Machine{AvailableMemory: w.available, Processors: 4},
	}, slog.New(slog.DiscardHandler))
}

// close closes the node, and checks that nothing is left.
func (w *world) close(t *testing.T, n *Node) {
	t.Helper()
	w.empty(t, n)
	if err := n.Close(); err != nil {
		t.Errorf("close the node: %v", err)
	}
}

// empty checks that nothing is left of any job.
func (w *world) empty(t *testing.T, n *Node) {
	t.Helper()
	n.mu.Lock()
	if len(n.jobs) > 0 {
		t.Errorf("%d jobs are left", len(n.jobs))
	}
	n.mu.Unlock()
	if k := w.open.Load(); k != 0 {
		t.Errorf("%d sources are left open", k)
	}
	noBuffers(t)
}

// noBuffers waits until this process has no staging buffer.
func noBuffers(t *testing.T) {
	t.Helper()
	testkit.Until(t, "staging buffers are closed", func() bool {
		return testkit.Descriptors(t, "hdmlp-staging") == 0
	})
}

// message returns a request to open job "j" on /data as one of several ranks, with 10 samples per
// step.
func message(rank, ranks int, change ...func(*request.Open)) request.Open {
	seed := uint64(7)
	m := request.Open{
		Job: "j", Rank: rank, WorldSize: ranks,
		Dataset: source.Spec{Kind: "fake", Path: "/data", Options: option.Values{
			source.ExtensionsKey: []string(nil),
		}},
		Stream: request.Stream{
			Seed:        &seed,
			Epochs:      4,
			GlobalBatch: 10,
			Shuffle:     "torch",
			Scheme:      "strided",
			Tail:        "pad",
		},
		Settings: request.Settings{
			ConfigFile: slowSource,
			Arguments:  map[string]any{"memory": "40000B", "staging_buffer": "64KiB"},
		},
	}
	for _, c := range change {
		c(&m)
	}
	return m
}

func set(key string, value any) func(*request.Open) {
	return func(m *request.Open) { m.Arguments[key] = value }
}

func variable(name, value string) func(*request.Open) {
	return func(m *request.Open) { m.Environment = map[string]string{name: value} }
}

func open(t *testing.T, n *Node, m request.Open) *Rank {
	t.Helper()
	r, err := n.Open(t.Context(), m, nil, func(request.Step) {})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

type at struct{ epoch, step int }

// consume plays a training process that takes the batches in [from, to), and checks the bytes of
// each sample.
func consume(t *testing.T, r *Rank, from, to at) map[at][]int32 {
	t.Helper()
	out, err := take(r, from, to)
	if err != nil {
		t.Error(err)
	}
	return out
}

var errEnough = errors.New("enough")

func take(r *Rank, from, to at) (map[at][]int32, error) {
	return takeSaying(r, from, to, func(sum uint64) uint64 { return sum })
}

// takeSaying is take by a process that reports the result of a function of the true audit sum.
func takeSaying(r *Rank, from, to at, says func(sum uint64) uint64) (map[at][]int32, error) {
	out := map[at][]int32{}
	var sum uint64
	err := r.Run(context.Background(), from.epoch, from.step, func(b *stage.Batch) error {
		here := at{b.Epoch, b.Step}
		if here == to {
			return errEnough
		}
		if b.Step == 0 {
			sum = 0
		}
		sum += b.Audit
		ids := []int32{}
		for i, id := range b.IDs {
			ids = append(ids, int32(id))
			data, err := read(r, b, i)
			if err != nil {
				return err
			}
			if !bytes.Equal(data, bytes.Repeat([]byte{byte(id)}, sampleSize)) {
				return fmt.Errorf("sample %d has other bytes", id)
			}
		}
		out[here] = ids
		for _, slot := range b.Slots {
			if _, err := r.Return(slot); err != nil {
				return err
			}
		}
		r.Yielded(b.Epoch, b.Step, stage.Stall{}, says(sum))
		r.Wait()
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	} else if err != nil {
		r.Raised()
	}
	return out, err
}

// read returns the bytes of a sample of a batch, as a process reads them.
func read(r *Rank, b *stage.Batch, i int) ([]byte, error) {
	data := make([]byte, b.Lengths[i])
	for _, e := range b.Extras {
		if e.Segment == b.Segments[i] {
			_, err := e.File.ReadAt(data, int64(b.Offsets[i]))
			return data, err
		}
	}
	for _, s := range r.Segments() {
		if s.Number == b.Segments[i] {
			_, err := s.File.ReadAt(data, int64(b.Offsets[i]))
			return data, err
		}
	}
	if s, ok := r.Segment(b.Segments[i]); ok {
		_, err := s.File.ReadAt(data, int64(b.Offsets[i]))
		return data, err
	}
	return nil, fmt.Errorf("no segment %d", b.Segments[i])
}

// sampleBytes is read for a sample that must exist.
func sampleBytes(t *testing.T, r *Rank, b *stage.Batch, i int) []byte {
	t.Helper()
	data, err := read(r, b, i)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// end is after the last batch.
var end = at{math.MaxInt, 0}

// together runs one process per rank.
func together(ranks []*Rank, process func(r *Rank)) {
	var all sync.WaitGroup
	for _, r := range ranks {
		all.Go(func() { process(r) })
	}
	all.Wait()
}

// refusal returns the error with which Open refuses a message.
func refusal(t *testing.T, n *Node, m request.Open) *failure.Error {
	t.Helper()
	r, err := n.Open(t.Context(), m, nil, func(request.Step) {})
	if err == nil {
		r.Close()
		t.Fatal("the job was opened")
	}
	return failure.Of(err)
}

// extensions is the option that datasets of the tests have.
var extensions = []option.Option{{Key: source.ExtensionsKey, Kind: option.List}}
