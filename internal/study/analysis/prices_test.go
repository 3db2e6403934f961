package analysis

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/model/remedy"
)

func TestPrices(t *testing.T) {
	path := filepath.Join(t.TempDir(), "prices.toml")
	if err := os.WriteFile(path, []byte("currency = \"EUR\"\nmemory_gb = 4\ncore = 3\nhour = 36\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	p, err := ReadPrices(path)
	if err != nil {
		t.Fatal(err)
	}
	r := job().Run()
	for text, want := range map[string]Price{
		"memory=1GB":           {Hour: 3, Known: true, Epoch: 0.39, Currency: "EUR"},
		"memory=1GB,threads=4": {Hour: 9, Known: true, Epoch: 0.45, Currency: "EUR"},
		"memory=1GB,nodes=2":   {Hour: 6, Currency: "EUR"},
		"source=2x":            {Currency: "EUR"},
	} {
		changes, err := remedy.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		got := p.of(r, changes, 36)
		if got.Known != want.Known || got.Currency != want.Currency ||
			!near(got.Hour, want.Hour, 1e-6) || !near(got.Epoch, want.Epoch, 1e-6) {
			t.Errorf("%s costs %+v, want %+v", text, *got, want)
		}
	}
	// the cheapest first, and what has no price last
	m := job()
	m.Loader.CacheMB = 0
	last := -1.0
	for _, o := range analyze(t, m, Options{Prices: p}).Remedies {
		switch {
		case !o.Price.Known:
			last = 1e9
		case o.Price.Hour < last:
			t.Errorf("%s for %v after %v", o.Text, o.Price.Hour, last)
		default:
			last = o.Price.Hour
		}
	}
}

// TestAPriceIsThatOfTheChange: of hdmlp's memory and threads, from what it would have without the
// change, whatever torch's loader has.
func TestAPriceIsThatOfTheChange(t *testing.T) {
	m := job()
	m.Loader = Loader{Name: Torch, Workers: 1, Streams: 1, CacheMB: 400}
	m.Room, m.Cores = 400_000_000, 2
	m.Switched = points(map[int]float64{1: 200, 2: 400})
	prices := &Prices{Of: map[string]float64{priceMemory: 10, priceCore: 1}}
	changes, err := remedy.Parse("memory=1GB,threads=4")
	if err != nil {
		t.Fatal(err)
	}
	r := analyze(t, m, Options{Prices: prices, Changes: changes})
	if p := r.WhatIf.Price; !p.Known || !near(p.Hour, 0.6*10+2, 1e-6) {
		t.Errorf("%+v", p)
	}
}

// TestPricesNameWhatIsWrong: the key, its value and what is allowed.
func TestPricesNameWhatIsWrong(t *testing.T) {
	for text, want := range map[string]string{
		"cores = 1":           `cores: unknown key; did you mean "core"?`,
		"core = -1":           "core is -1; it must be the price of an hour",
		"core = \"cheap\"":    "core is cheap; it must be",
		"core = inf":          "core is +Inf",
		"currency = 5":        `currency is 5; it must be a name such as "EUR"`,
		"currency = \"EUR\"":  "it has no price; give one of memory_gb, ssd_gb, core, node or hour",
		"core":                "line 1, column",
		"core = 1\ncore = 2":  "not TOML",
		"[core]\nof = \"me\"": "core is map[of:me]",
	} {
		if _, err := decodePrices([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	if _, err := ReadPrices("/dev/null"); err == nil ||
		!strings.HasPrefix(err.Error(), "/dev/null: cannot read the prices") {
		t.Error(err)
	}
}
