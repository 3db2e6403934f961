package records

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/source/formats"
	"github.com/hdmlp/hdmlp/internal/source/formats/classes"
	"github.com/hdmlp/hdmlp/internal/source/objects"
	"github.com/hdmlp/hdmlp/internal/source/objects/directory"
)

// store is a place of files that says which versions they are of, as an object store does.
type store struct {
	*directory.Directory
	reads *int
	list  error // of List
}

func (s *store) Versioned() bool { return true }

func tagged(o source.Object, err error) (source.Object, error) {
	if err == nil {
		o.Tag = xxh3.HashString128(time.Unix(0, o.Modified).String()).Bytes()
		o.Modified = 0
	}
	return o, err
}

func (s *store) Stat(ctx context.Context, name string) (source.Object, error) {
	return tagged(s.Directory.Stat(ctx, name))
}

func (s *store) List(ctx context.Context, prefix string, each func(source.Object) error) error {
	if s.list != nil {
		return s.list
	}
	return s.Directory.List(ctx, prefix, func(o source.Object) error {
		o, _ = tagged(o, nil)
		return each(o)
	})
}

func (s *store) Read(ctx context.Context, o *source.Object, offset int64, parts [][]byte,
) (source.Stamp, error) {
	*s.reads++
	if now, err := s.Stat(ctx, o.Name); err != nil || now.Tag != o.Tag {
		return 0, errors.Join(err, &objects.Error{Path: o.Name, Kind: source.ErrChanged})
	}
	plain := *o
	plain.Tag = [16]byte{}
	return s.Directory.Read(ctx, &plain, offset, parts)
}

// atURL opens what a test has written as what a URL names.
func (o *opener) atURL(reads *int, list error) (source.Indexed, error) {
	return o.formatAtURL(lines(&o.indexed), reads, list)
}

func (o *opener) formatAtURL(f formats.Format, reads *int, list error, tell ...func(string),
) (source.Indexed, error) {
	place := objects.Place{
		Schemes: []string{"mem"},
		Open: func(string, *source.View) (objects.Objects, error) {
			d, err := directory.Open(o.root, directory.Options{})
			return &store{d, reads, list}, err
		},
	}
	k := Kind(f, []objects.Place{place}, o.memory)
	return k.Open(o.t.Context(), "mem://bucket/x/", source.OpenOptions{
		Tell: append(tell, func(string) {})[0], Await: o.await, Exchange: o.exchange,
		View: &source.View{Access: &source.Access{Endpoint: "https://host"}},
	})
}

func TestOpenAURL(t *testing.T) {
	o := newOpener(t, map[string]string{"a.txt": "1\n2\n", "b.txt": "3\n"})
	var ids [2]uint64
	for round, want := range []int64{1, 1, 2} { // how often it has been indexed
		if round == 2 {
			must(t, os.WriteFile(filepath.Join(o.root, "b.txt"), []byte("4\n"), 0o644))
		}
		reads := 0
		src, err := o.atURL(&reads, nil)
		must(t, err)
		opened := src.(*Opened)
		if n := o.indexed.Load(); n != want || opened.FromIndex() != (round == 1) {
			t.Errorf("round %d: indexed %d times, want %d", round, n, want)
		}
		if most := []int{2, 0, 2}[round]; reads > most { // the format reads each object
			t.Errorf("round %d: %d reads although the versions are known", round, reads)
		}
		if beside := filepath.Dir(opened.IndexPath()); beside == o.root ||
			!strings.HasPrefix(beside, os.Getenv("XDG_CACHE_HOME")) {
			t.Errorf("the index is at %s", opened.IndexPath())
		}
		device, inode := opened.DirectoryID()
		if now := [2]uint64{device, inode}; round == 0 {
			ids = now
		} else if now != ids || device == 0 || inode == 0 {
			t.Errorf("%x, before %x", now, ids)
		}
		last := src.Index().Len() - 1
		data := make([]byte, src.Index().Size(last))
		if _, err := src.Read(t.Context(), last, data); err != nil {
			t.Error(err)
		}
		stamp, err := src.Stat(t.Context(), last)
		if err != nil || stamp != src.Index().Stamp(last) {
			t.Errorf("%x, %v", stamp, err)
		}
		must(t, src.Close())
	}
}

// TestNothingIsReadToListAStore: its versions, which a listing has, say what the objects are.
func TestNothingIsReadToListAStore(t *testing.T) {
	o := newOpener(t, nil)
	must(t, os.Mkdir(filepath.Join(o.root, "class"), 0o755))
	o.write("class/a.jpg", "1")
	var fingerprints [][16]byte
	for round := range 3 {
		if round == 2 {
			must(t, os.WriteFile(filepath.Join(o.root, "class", "a.jpg"), []byte("2"), 0o644))
		}
		reads := 0
		src, err := o.formatAtURL(classes.Format(), &reads, nil)
		must(t, err)
		if src.(*Opened).IndexPath() != "" || reads != 0 {
			t.Errorf("index at %q, %d reads", src.(*Opened).IndexPath(), reads)
		}
		fingerprints = append(fingerprints, src.Index().Fingerprint())
		must(t, src.Close())
	}
	if fingerprints[0] != fingerprints[1] || fingerprints[1] == fingerprints[2] {
		t.Errorf("%x", fingerprints)
	}
}

// TestAListingTakesAPartOfTheMemory, however long it is.
func TestAListingTakesAPartOfTheMemory(t *testing.T) {
	o := newOpener(t, nil)
	must(t, os.Mkdir(filepath.Join(o.root, "class"), 0o755))
	for _, name := range []string{"a.jpg", "b.jpg", "c.jpg"} {
		o.write("class/"+name, "1")
	}
	for available, fits := range map[int64]bool{1000: false, 4 * 600: true} {
		o.memory = func() (int64, error) { return available, nil }
		reads := 0
		src, err := o.formatAtURL(classes.Format(), &reads, nil)
		if fits {
			must(t, err)
			must(t, src.Close())
		} else if !errors.Is(err, source.ErrPlace) || !strings.Contains(err.Error(), "a quarter") {
			t.Error(err)
		}
	}
}

// TestAnObjectThatIsOverwritten while its dataset is open is found out by the next read of it, and
// by Stat only once there is doubt.
func TestAnObjectThatIsOverwritten(t *testing.T) {
	o := newOpener(t, map[string]string{"a.txt": "1\n"})
	reads := 0
	src, err := o.atURL(&reads, nil)
	must(t, err)
	defer src.Close() //nolint:errcheck // it was only read
	must(t, os.WriteFile(filepath.Join(o.root, "a.txt"), []byte("2\n"), 0o644))
	if _, err := src.Read(t.Context(), 0, make([]byte, src.Index().Size(0))); !errors.Is(err,
		source.ErrChanged) {
		t.Error(err)
	}
	if _, err := src.Stat(t.Context(), 0); err != nil {
		t.Error(err)
	}
	src.(source.Doubted).Doubt()
	if _, err := src.Stat(t.Context(), 0); !errors.Is(err, source.ErrChanged) {
		t.Error(err)
	}
}

func TestURLsThatCannotBeOpened(t *testing.T) {
	o := newOpener(t, map[string]string{"a.txt": "1\n"})
	reads := 0
	_, err := o.atURL(&reads, &objects.Error{Path: "mem://bucket/x", Kind: source.ErrUnreadable})
	if !errors.Is(err, source.ErrPlace) || !strings.Contains(err.Error(), "mem://bucket/x") {
		t.Error(err)
	}
	_, err = o.atURL(&reads, &objects.Error{Path: "mem://bucket/x", Kind: source.ErrUnavailable})
	if !errors.Is(err, source.ErrUnavailable) {
		t.Error(err)
	}
}

// TestAnIndexThatWasInterrupted is gone on with: what was found in an object is not found again,
// unless it has another version.
func TestAnIndexThatWasInterrupted(t *testing.T) {
	o := newOpener(t, map[string]string{"a.txt": "1\n", "b.txt": "2\n", "c.txt": "3\n"})
	var found []string
	failing := errors.New("it breaks off")
	f := keepingLines(&found)
	whole := f.Index
	reads := 0
	f.Index = func(ctx context.Context, place objects.Objects, names []string, opts formats.Options,
	) (*source.Index, error) {
		_, err := whole(ctx, place, names[:2], opts)
		return nil, errors.Join(err, failing)
	}
	if _, err := o.formatAtURL(f, &reads, nil); err == nil || !strings.Contains(err.Error(),
		failing.Error()) {
		t.Fatal(err)
	}
	must(t, os.WriteFile(filepath.Join(o.root, "b.txt"), []byte("4\n"), 0o644))
	found, f.Index = nil, whole
	src, err := o.formatAtURL(f, &reads, nil)
	must(t, err)
	defer src.Close() //nolint:errcheck // it was only read
	if strings.Join(found, " ") != "b.txt c.txt" {
		t.Errorf("the lines of %v were found again", found)
	}
	data := make([]byte, 2)
	if _, err := src.Read(t.Context(), 1, data); err != nil || string(data) != "4\n" {
		t.Errorf("%q, %v", data, err)
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(src.(*Opened).IndexPath()), "*.part"))
	if err != nil || len(left) > 0 {
		t.Error(left, err)
	}
}

// keepingLines is lines, which keeps what it finds, and appends the names of the objects that it
// reads to found.
func keepingLines(found *[]string) formats.Format {
	var indexed atomic.Int64
	f := lines(&indexed)
	f.Index = func(ctx context.Context, place objects.Objects, names []string, opts formats.Options,
	) (*source.Index, error) {
		b := source.NewRecordBuilder([]string{"line"}, nil, nil)
		b.Origin = opts.Origin
		for _, name := range names {
			object, err := place.Stat(ctx, name)
			if err != nil {
				return nil, err
			}
			text := opts.Kept.Found(&object)
			if text == nil {
				*found = append(*found, name)
				text = make([]byte, object.Size)
				if _, err := place.Read(ctx, &object, 0, [][]byte{text}); err != nil {
					return nil, err
				}
				opts.Kept.Keep(&object, text)
			}
			b.Add(source.Record{Ranges: []source.Range{in(b.Object(object), 0, int64(len(text)))}})
		}
		return b.Build()
	}
	return f
}

// TestProcessesThatOpenAURLAtOnce make its index once: the others wait for it.
func TestProcessesThatOpenAURLAtOnce(t *testing.T) {
	o := newOpener(t, map[string]string{"a.txt": "1\n2\n", "b.txt": "3\n"})
	waits := make(chan string)
	f := lines(&o.indexed)
	whole := f.Index
	f.Index = func(ctx context.Context, place objects.Objects, names []string, opts formats.Options,
	) (*source.Index, error) {
		<-waits // until the other one waits
		return whole(ctx, place, names, opts)
	}
	type answer struct {
		src source.Indexed
		err error
	}
	answers := make(chan answer)
	for range 2 {
		go func() {
			reads := 0
			src, err := o.formatAtURL(f, &reads, nil, func(text string) { waits <- text })
			answers <- answer{src, err}
		}()
	}
	from := map[bool]int{}
	for range 2 {
		a := <-answers
		must(t, a.err)
		if a.src.Index().Len() != 3 {
			t.Errorf("%d samples", a.src.Index().Len())
		}
		from[a.src.(*Opened).FromIndex()]++
		must(t, a.src.Close())
	}
	if o.indexed.Load() != 1 || from[true] != 1 || from[false] != 1 {
		t.Errorf("indexed %d times; from the index: %v", o.indexed.Load(), from)
	}
}

// TestASilentProcessIsNotWaitedFor, if it does not make the index although it has begun to.
func TestASilentProcessIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOpener(t, map[string]string{"a.txt": "1\n"})
		f := lines(&o.indexed)
		whole := f.Index
		f.Index = func(context.Context, objects.Objects, []string, formats.Options,
		) (*source.Index, error) {
			return nil, errors.New("it was stopped")
		}
		reads := 0
		if _, err := o.formatAtURL(f, &reads, nil); err == nil {
			t.Fatal("the dataset was opened")
		}
		f.Index = whole
		left, err := filepath.Glob(os.Getenv("XDG_CACHE_HOME") + "/hdmlp/index/*.part")
		if err != nil || len(left) != 1 {
			t.Fatal(left, err)
		}
		stopped, err := os.Open(left[0])
		must(t, err)
		defer stopped.Close() //nolint:errcheck // it is only locked
		must(t, unix.Flock(int(stopped.Fd()), unix.LOCK_EX))
		var told []string
		src, err := o.formatAtURL(f, &reads, nil, func(text string) { told = append(told, text) })
		must(t, err)
		must(t, src.Close())
		if len(told) != 2 || !strings.Contains(told[1], "no sign of life for 2m0s") {
			t.Error(told)
		}
	})
}
