package source

import (
	"bytes"
	"flag"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var rewrite = flag.Bool("rewrite", false, "rewrite the golden files")

// small returns the index of the golden file, which has nested directories, one without samples,
// and a class name that is not UTF-8.
func small(t testing.TB) *Index {
	b := NewBuilder([]string{"cat", "d\xffg"}, []string{".jpeg", ".jpg"})
	b.Directory(Directory{Class: -1})
	b.Directory(Directory{
		Path:     "cat",
		Class:    0,
		Modified: 1_700_000_000_000_000_001,
		Changed:  1_700_000_000_000_000_002,
		Settled:  true,
	})
	b.Sample("1.jpg", 110_000, 1_600_000_000_000_000_001,
		NewStamp(110_000, 1_600_000_000_000_000_001, 8, 9))
	b.Sample("10.jpg", 0, 1_600_000_000_000_000_002, 0)
	b.Directory(Directory{Path: "cat/empty", Class: 0, Modified: 1, Changed: 2})
	b.Directory(Directory{Path: "cat/sub", Class: 0, Modified: 3, Changed: 4, Settled: true})
	b.Sample("a.jpeg", 3, -5, 0)
	b.Directory(Directory{Path: "d\xffg", Class: 1, Modified: 5, Changed: 6})
	b.Sample("\xfe.jpg", math.MaxUint32, 7, 0)
	x, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	x, err = x.WithContents([][16]byte{
		ContentDigest([]byte("1")), ContentDigest(nil),
		ContentDigest([]byte("abc")), Unreadable,
	})
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func encode(t testing.TB, x *Index) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := x.Encode(&b); err != nil {
		t.Fatal(err)
	}
	if int64(b.Len()) != x.EncodedSize() {
		t.Fatalf("%d bytes, not %d", b.Len(), x.EncodedSize())
	}
	return b.Bytes()
}

func decode(b []byte) (*Index, error) { return Decode(bytes.NewReader(b), int64(len(b))) }

func TestIndexReturnsWhatWasBuilt(t *testing.T) {
	built := small(t)
	decoded, err := decode(encode(t, built))
	if err != nil {
		t.Fatal(err)
	}
	for what, x := range map[string]*Index{"built": built, "decoded": decoded} {
		var samples []string
		for id := range x.Len() {
			samples = append(samples, fmt.Sprintf("%d %q %d", x.Label(id), x.Name(id), x.Size(id)))
		}
		want := []string{
			`0 "cat/1.jpg" 110000`, `0 "cat/10.jpg" 0`, `0 "cat/sub/a.jpeg" 3`,
			`1 "d\xffg/\xfe.jpg" 4294967295`,
		}
		if diff := cmp.Diff(want, samples); diff != "" {
			t.Errorf("%s: samples (-want +got):\n%s", what, diff)
		}
		if x.Bytes() != 110_003+math.MaxUint32 || x.MaxSize() != math.MaxUint32 || x.layout.wide {
			t.Errorf("%s: %d bytes, at most %d, wide: %v", what, x.Bytes(), x.MaxSize(),
				x.layout.wide)
		}
		if diff := cmp.Diff([]int{3, 1}, x.ClassSizes()); diff != "" {
			t.Errorf("%s: classes (-want +got):\n%s", what, diff)
		}
		if diff := cmp.Diff([]string{"cat", "d\xffg"}, x.Classes()); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]string{".jpeg", ".jpg"}, x.Extensions()); diff != "" {
			t.Error(diff)
		}
		var directories []Directory
		for _, d := range x.Directories() {
			directories = append(directories, d)
		}
		if diff := cmp.Diff([]Directory{
			{Class: -1},
			{
				Path:     "cat",
				Class:    0,
				Modified: 1_700_000_000_000_000_001,
				Changed:  1_700_000_000_000_000_002,
				Settled:  true,
				End:      2,
			},
			{Path: "cat/empty", Class: 0, Modified: 1, Changed: 2, First: 2, End: 2},
			{Path: "cat/sub", Class: 0, Modified: 3, Changed: 4, Settled: true, First: 2, End: 3},
			{Path: "d\xffg", Class: 1, Modified: 5, Changed: 6, First: 3, End: 4},
		}, directories); diff != "" {
			t.Errorf("%s: directories (-want +got):\n%s", what, diff)
		}
	}
	if !built.Equal(decoded) || built.Fingerprint() != decoded.Fingerprint() {
		t.Error("the decoded index differs")
	}
	buf := make([]byte, 0, 64)
	if n := testing.AllocsPerRun(100, func() {
		buf = built.AppendName(buf[:0], 2)
		_ = built.Label(3) + int(built.Size(1))
	}); n != 0 {
		t.Errorf("%v allocations per lookup", n)
	}
}

func TestDirectoriesThatChangedRecentlyAreNotSettled(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	ago := func(d time.Duration) int64 { return now.Add(-d).UnixNano() }
	for _, c := range []struct {
		modified, changed int64
		want              bool
	}{
		{ago(3 * time.Second), ago(3 * time.Second), true},
		{ago(time.Second), ago(time.Second), false},
		{ago(time.Hour), ago(time.Second), false},
		{ago(-time.Hour), ago(time.Hour), false}, // in the future
		{0, ago(time.Hour), true},
		{0, 0, false},
		{1_000_000_000, 1_000_000_000, false},
	} {
		if got := Settled(c.modified, c.changed, now); got != c.want {
			t.Errorf("modified %d, changed %d: %v", c.modified, c.changed, got)
		}
	}
}

func TestStatisticsMatchTheSizes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SliceOfN(rapid.OneOf(rapid.Int64Range(0, 20), rapid.Int64Range(0, 1<<50)), 1,
			50).Draw(t, "sizes")
		b := NewBuilder([]string{"a"}, nil)
		b.Directory(Directory{Class: -1})
		b.Directory(Directory{Path: "a"})
		for i, size := range sizes {
			b.Sample(fmt.Sprint(i), size, 0, 0)
		}
		x, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		s := x.Statistics()
		below := 0
		above := 0
		smallest := sizes[0]
		largest := sizes[0]
		for _, size := range sizes {
			smallest, largest = min(smallest, size), max(largest, size)
			if size < s.Median {
				below++
			}
			if size > s.Median {
				above++
			}
		}
		n := len(sizes)
		if s.Smallest != smallest || s.Largest != largest || below > n/2 || above > (n-1)/2 {
			t.Fatalf("%+v of %v", s, sizes)
		}
		total := 0
		for i, bin := range s.Histogram {
			got := 0
			for _, size := range sizes {
				if size >= bin.From && size < bin.To {
					got++
				}
			}
			if got != bin.Samples || i > 0 && s.Histogram[i-1].To != bin.From {
				t.Fatalf("bin %+v has %d of %v", bin, got, sizes)
			}
			total += bin.Samples
		}
		if total != n || s.Histogram[0].Samples == 0 ||
			s.Histogram[len(s.Histogram)-1].Samples == 0 {
			t.Fatalf("%+v of %v", s.Histogram, sizes)
		}
	})
}
