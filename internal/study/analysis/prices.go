package analysis

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"slices"

	"github.com/hdmlp/hdmlp/internal/lib/files"
	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/model/envfile"
	"github.com/hdmlp/hdmlp/internal/model/remedy"
)

// Prices are what an hour of something costs. What has no price is not priced.
type Prices struct {
	Currency string             // such as EUR; "": none is named
	Of       map[string]float64 // by the keys of a price file
}

// The keys of a price file with a price: what an hour of each costs.
const (
	priceMemory = "memory_gb" // 1e9 bytes of memory
	priceSSD    = "ssd_gb"    // 1e9 bytes of a cache directory
	priceCore   = "core"
	priceNode   = "node" // with all that it has
	priceHour   = "hour" // the whole job as it is
)

var priceKeys = []string{priceMemory, priceSSD, priceCore, priceNode, priceHour}

// maxPriceBytes is the largest price file.
const maxPriceBytes = 64 << 10

// ReadPrices reads a price file. Its error names the file, and each key that is wrong.
func ReadPrices(path string) (*Prices, error) {
	data, err := files.ReadText(path, maxPriceBytes)
	if err != nil {
		var named *fs.PathError
		if errors.As(err, &named) {
			err = named.Err
		}
		return nil, fmt.Errorf("%s: cannot read the prices (a TOML file of at most %d KiB): %w", path,
			maxPriceBytes>>10, err)
	}
	p, err := decodePrices(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return p, nil
}

func decodePrices(data []byte) (*Prices, error) {
	all, err := envfile.TOML(data)
	if err != nil {
		return nil, err
	}
	p, keys := &Prices{Of: map[string]float64{}}, append([]string{"currency"}, priceKeys...)
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(all)) {
		value := all[key]
		if key == "currency" {
			text, ok := value.(string)
			if !ok || len(text) > 16 {
				errs = append(errs, fmt.Errorf(`currency is %v; it must be a name such as "EUR"`, value))
			}
			p.Currency = text
			continue
		}
		if !slices.Contains(priceKeys, key) {
			errs = append(errs, fmt.Errorf("%s: unknown key%s; allowed: %s", key,
				human.Nearest(key, keys), human.List(keys)))
			continue
		}
		price, ok := value.(float64)
		if whole, is := value.(int64); is {
			price, ok = float64(whole), true
		}
		if !ok || !(price >= 0) || math.IsInf(price, 1) {
			errs = append(errs, fmt.Errorf("%s is %v; it must be the price of an hour, a number of 0 "+
				"or more", key, value))
			continue
		}
		p.Of[key] = price
	}
	if errs == nil && len(p.Of) == 0 {
		errs = append(errs, fmt.Errorf("it has no price; give one of %s", human.List(priceKeys)))
	}
	return p, errors.Join(errs...)
}

// Price is what a change costs.
type Price struct {
	// Hour is what an hour of the change costs in addition; known only if everything that it needs
	// has a price.
	Hour  float64 `json:"per_hour"`
	Known bool    `json:"known"`
	// Epoch is what an epoch costs then; 0: not known.
	Epoch    float64 `json:"per_epoch,omitempty"`
	Currency string  `json:"currency,omitempty"`
}

// of returns what changes of the run cost, with which an epoch takes this many seconds.
func (p *Prices) of(r *remedy.Run, changes []remedy.Change, epoch float64) *Price {
	out := &Price{Known: true, Currency: p.Currency}
	nodes := float64(r.Nodes)
	for _, c := range changes {
		if c.Key == remedy.Nodes {
			nodes = c.Amount
		}
	}
	add := func(key string, amount float64) {
		price, ok := p.Of[key]
		out.Known = out.Known && ok
		out.Hour += price * amount
	}
	for _, c := range changes {
		from := remedy.Present(r, c.Key)
		switch c.Key {
		case remedy.Memory:
			add(priceMemory, (c.Amount-from)/1e9*nodes)
		case remedy.Cache:
			add(priceSSD, (c.Amount-from)/1e9*nodes)
			out.Known = out.Known && c.Speed == 0 // a faster disk has another price
		case remedy.Threads:
			add(priceCore, (c.Amount-from)*nodes)
		case remedy.Nodes:
			add(priceNode, c.Amount-from)
		case remedy.SourceRate, remedy.NetworkRate, remedy.ComputeSpeed:
			out.Known = false
		}
	}
	if hour, ok := p.Of[priceHour]; ok && out.Known {
		out.Epoch = (hour + out.Hour) * epoch / 3600
	}
	return out
}

// compare orders the cheapest first, and what has no price last.
func (p *Price) compare(o *Price) int {
	switch {
	case p.Known != o.Known && p.Known:
		return -1
	case p.Known != o.Known:
		return 1
	case p.Known && p.Hour < o.Hour:
		return -1
	case p.Known && p.Hour > o.Hour:
		return 1
	}
	return 0
}
