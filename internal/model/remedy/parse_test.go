package remedy

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	for text, want := range map[string][]Change{
		"memory=64GB,nodes=8":     {{Key: Memory, Amount: 64e9}, {Key: Nodes, Amount: 8}},
		"cache=1TB@2GB/s":         {{Key: Cache, Amount: 1e12, Speed: 2000}},
		"cache=0":                 {{Key: Cache}},
		" threads = 12 ":          {{Key: Threads, Amount: 12}},
		"source=200":              {{Key: SourceRate, Amount: 200}},
		"network=10Gbit/s":        {{Key: NetworkRate, Amount: 1250}},
		"compute=0.5 MB/s":        {{Key: ComputeSpeed, Amount: 0.5}},
		"source=800 Mbit/s":       {{Key: SourceRate, Amount: 100}},
		"memory=1KiB,cache=2KiB":  {{Key: Memory, Amount: 1024}, {Key: Cache, Amount: 2048}},
		"compute=1e3,memory=1024": {{Key: ComputeSpeed, Amount: 1000}, {Key: Memory, Amount: 1024}},
	} {
		got, err := Parse(text)
		if d := cmp.Diff(want, got); err != nil || d != "" {
			t.Errorf("%q: %v\n%s", text, err, d)
		}
	}
}

// TestParseNamesWhatIsWrong: the key, the value and what is allowed.
func TestParseNamesWhatIsWrong(t *testing.T) {
	const all = "threads, memory, cache, nodes, source, network, compute"
	for text, want := range map[string][]string{
		"":                    {`"" is not KEY=VALUE`, all},
		"memory":              {`"memory" is not KEY=VALUE`, all},
		"ram=1GB":             {`"ram" is not a key; allowed: ` + all},
		"memory=64":           nil,
		"memory=lots":         {`memory is "lots"; allowed: a size such as "10GB"`},
		"memory=1GB@5":        {`memory is "1GB@5"; allowed: a size`},
		"memory=-1":           {`memory is "-1"`},
		"cache=1GB@0":         {`cache is "1GB@0"; allowed: a size`, `"1TB@2GB/s"`},
		"cache=1GB@":          {`cache is "1GB@"`},
		"nodes=0":             {`nodes is "0"; allowed: a whole number from 1 to 65536`},
		"nodes=2.5":           {`nodes is "2.5"`},
		"threads=99999999":    {`threads is "99999999"; allowed: a whole number from 1 to 65536`},
		"source=0":            {`source is "0"; allowed: a rate above 0`},
		"source=fast":         {`source is "fast"`},
		"network=NaN":         {`network is "NaN"`},
		"network=inf":         {`network is "inf"`},
		"compute=1e99":        {`compute is "1e99"`},
		"nodes=2,nodes=3":     {"nodes is given twice"},
		"nodes=2,":            {`"" is not KEY=VALUE`},
		"nodes=2,,threads=10": {`"" is not KEY=VALUE`},
	} {
		_, err := Parse(text)
		if want == nil {
			if err != nil {
				t.Errorf("%q: %v", text, err)
			}
			continue
		}
		for _, w := range want {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%q: %v; want %q in it", text, err, w)
			}
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("memory=64GB,nodes=8,cache=1TB@2GB/s,source=1")
	r := machine{nodes: 2, memory: 1, network: 1, source: 1, compute: 1}.run()
	f.Fuzz(func(t *testing.T, text string) {
		changes, err := Parse(text)
		if err != nil {
			return
		}
		if a := Ask(r, changes); !(a.Then.Epoch > 0) {
			t.Fatalf("%+v", a.Then)
		}
	})
}
